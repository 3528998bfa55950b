"""A port proven: one model, written by hand in several frameworks."""

from dlb.proof.port.inputs import Given
from dlb.proof.port.verify import Port, check_models, verify_models, verify_port

__all__ = ["Given", "Port", "check_models", "verify_models", "verify_port"]
