"""`herma skills`: written procedures, for people. `desk` is what the commands share; each other module is a few."""

from herma.cli.skills import decide, look, outside, standing, trace, write
from herma.cli.skills.desk import skills

__all__ = ["decide", "look", "outside", "skills", "standing", "trace", "write"]
