"""Stands in for a package of the vendor that is not published. The tests import it, and against an emulator use next to nothing of it."""
