"""All rules, by family. Each family is a page of its own."""

from __future__ import annotations

from herma.safety.rules.concealment import CONCEALMENT
from herma.safety.rules.extraction import EXTRACTION
from herma.safety.rules.instructions import INSTRUCTIONS
from herma.safety.rules.languages import LANGUAGES
from herma.safety.rules.output import OUTPUT
from herma.safety.rules.personas import PERSONAS
from herma.safety.rules.shell import SHELL

RULES = (*INSTRUCTIONS, *PERSONAS, *CONCEALMENT, *EXTRACTION, *OUTPUT, *SHELL, *LANGUAGES)
