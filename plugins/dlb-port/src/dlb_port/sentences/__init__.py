"""Sentences of findings about ports and about two files; each module registers its own."""
