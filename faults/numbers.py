"""Number types of fault and experiment documents.

All finite, none taken from text or from true/false: `probability: yes` is YAML for 1.0 and would
otherwise break every request.
"""

from typing import Annotated

from pydantic import Field, FiniteFloat, StringConstraints

Number = Annotated[FiniteFloat, Field(strict=True)]
"""A finite number; true, false and text are refused."""

Ratio = Annotated[FiniteFloat, Field(strict=True, ge=0, le=1)]
"""A ratio in [0, 1]."""

Share = Annotated[FiniteFloat, Field(strict=True, gt=0, lt=1)]
"""A ratio in (0, 1): both sides get something."""

Probability = Annotated[FiniteFloat, Field(strict=True, gt=0, le=1)]
"""A probability in (0, 1]."""

Count = Annotated[int, Field(strict=True, ge=0)]
"""A whole number, at least 0."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$")]
"""1 to 100 letters, digits, `.`, `_`, `/` or `-`, the first a letter or digit."""
