"""Is everything all right with this home? What is not, and what to type. Looking changes nothing.

`diagnose` looks at one thing after the other and never stops at the first that is wrong; `repair` mends.
"""

from herma.doctor.diagnose import Check, Diagnosis, State, diagnose
from herma.doctor.repair import Fix, Mended, mend, plan

__all__ = ["Check", "Diagnosis", "Fix", "Mended", "State", "diagnose", "mend", "plan"]
