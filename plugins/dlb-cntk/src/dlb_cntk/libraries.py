"""The shared libraries that CNTK's wheel does not bring.

The wheel of CNTK 2.7 is linked with Open MPI 1.10 (``libmpi.so.12``, ``libmpi_cxx.so.1``), also where
only one process runs. Later releases of Open MPI have all that CNTK calls, under other names. So the
present one is loaded for all to see, and an empty library under each old name after it: the dynamic
linker then takes the name for loaded, and finds every symbol in the present library. Nothing is
written to the environment, and ``LD_LIBRARY_PATH`` plays no part.
"""

import ctypes
import struct
import tempfile

from dlb_worker.errors import UnsupportedError

__all__ = ["load_mpi"]

#: The names that CNTK asks for, and those that do: its own, and Open MPI 2 to 5.
NAMES = {
    "libmpi.so.12": ("libmpi.so.40", "libmpi.so.20"),
    "libmpi_cxx.so.1": ("libmpi_cxx.so.40", "libmpi_cxx.so.20"),
}


def load_mpi() -> str:
    """Load Open MPI for CNTK, before CNTK is imported.

    Returns:
        the name of the library.

    Raises:
        UnsupportedError: there is none.
    """
    found = [_load(old, others) for old, others in NAMES.items()]
    return found[0]


def _load(old: str, others: "tuple[str, ...]") -> str:
    for name in (old,) + others:
        try:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if name != old:
            with tempfile.NamedTemporaryFile(suffix=".so") as file:
                file.write(empty_library(old))
                file.flush()
                ctypes.CDLL(file.name, ctypes.RTLD_GLOBAL)
        return name
    raise UnsupportedError(
        "CNTK needs Open MPI's {}, which this machine does not have; install it "
        "(Debian and Ubuntu: apt-get install libopenmpi3)".format(" or ".join((old,) + others))
    )


def empty_library(name: str) -> bytes:
    """A shared library for x86-64 that is called ``name`` and holds nothing.

    Source: System V ABI, gABI 4.1, chapters 4 and 5: a header, two program headers, and one segment
    with a string table, a symbol table of the null symbol, and the dynamic section.
    """
    strings = b"\0" + name.encode() + b"\0"
    strings += b"\0" * (-len(strings) % 8)
    headers, header_size, entry_size, symbol_size = 64, 56, 16, 24
    string_table = headers + 2 * header_size
    symbol_table = string_table + len(strings)
    dynamic = symbol_table + symbol_size
    entries = [
        (14, 1),  # DT_SONAME, an offset in the string table
        (5, string_table),  # DT_STRTAB
        (10, len(strings)),  # DT_STRSZ
        (6, symbol_table),  # DT_SYMTAB
        (11, symbol_size),  # DT_SYMENT
        (0, 0),  # DT_NULL
    ]
    size = dynamic + entry_size * len(entries)
    shared_object, x86_64 = 3, 62
    ident = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH",
        shared_object,
        x86_64,
        1,
        0,
        headers,
        0,
        0,
        headers,
        header_size,
        2,
        64,
        0,
        0,
    )

    def segment(kind: int, start: int, length: int, align: int) -> bytes:
        readable_and_writable = 6
        return struct.pack(
            "<IIQQQQQQ", kind, readable_and_writable, start, start, start, length, length, align
        )

    load, dynamic_section = 1, 2
    return b"".join(
        [
            header,
            segment(load, 0, size, 4096),
            segment(dynamic_section, dynamic, size - dynamic, 8),
            strings,
            b"\0" * symbol_size,
        ]
        + [struct.pack("<QQ", *entry) for entry in entries]
    )
