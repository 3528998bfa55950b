"""The example adapter under the name ``faulty``, which goes wrong as ``DLB_FAULT`` says."""
