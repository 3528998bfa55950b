"""What this package adds to certificates, by the hook ``dlb_findings``; importing it registers sentences."""

from __future__ import annotations

from dlb_port.check_tables import FILE, PORT
from dlb_port.findings import files, port
from dlb_port.sentences import files as file_sentences
from dlb_port.sentences import port as port_sentences

__all__ = ["CAUSES", "CHECKS", "SENTENCES"]

#: Modules whose sentences are registered.
SENTENCES = (port_sentences, file_sentences)
CAUSES = (port, files)
CHECKS = (PORT, FILE)
