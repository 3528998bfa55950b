"""The libraries that CNTK's wheel does not bring.

It is linked with Open MPI 1.10 (``libmpi.so.12``), also where one process runs. Later releases have
all that it calls, under another name. So the one that is there is loaded for all to see, and an empty
library under each old name: the dynamic linker then takes the old name for loaded, and finds every
symbol in the new library. Nothing is written to the environment, nor read from LD_LIBRARY_PATH.
"""

import ctypes
import struct
import tempfile

from dlb_worker.errors import UnsupportedError

#: The names that CNTK asks for, and those that Open MPI 4 and 2 have.
NAMES = {
    "libmpi.so.12": ("libmpi.so.40", "libmpi.so.20"),
    "libmpi_cxx.so.1": ("libmpi_cxx.so.40", "libmpi_cxx.so.20"),
}


def load_mpi() -> str:
    """Load Open MPI, before CNTK is imported, and name it.

    Raises:
        UnsupportedError: there is none.
    """
    mpi, *_ = (_load(old, (old, *others)) for old, others in NAMES.items())
    return mpi


def _load(old: str, names: "tuple[str, ...]") -> str:
    for name in names:
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
        "(Debian and Ubuntu: apt-get install libopenmpi3)".format(" or ".join(names))
    )


def empty_library(name: str) -> bytes:
    """A shared library for x86-64 that is called ``name`` and holds nothing.

    Source: System V ABI 4.1, chapters 4 and 5. A header, two program headers, then a segment with
    the strings, a symbol table of the null symbol, and the dynamic section.
    """
    strings = b"\0" + name.encode() + b"\0"
    strings += b"\0" * (-len(strings) % 8)
    start, symbol = 64 + 2 * 56, 24
    dynamic = start + len(strings) + symbol
    # DT_SONAME, DT_STRTAB, DT_STRSZ, DT_SYMTAB, DT_SYMENT, DT_NULL
    entries = (14, 1, 5, start, 10, len(strings), 6, start + len(strings), 11, symbol, 0, 0)
    size = dynamic + 8 * len(entries)
    # ET_DYN, EM_X86_64; segments PT_LOAD and PT_DYNAMIC that can be read and written
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, size, size, 4096)
    rest = size - dynamic
    segment = struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, rest, rest, 8)
    return header + load + segment + strings + b"\0" * symbol + struct.pack("<12Q", *entries)
