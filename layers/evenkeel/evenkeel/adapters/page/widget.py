"""Shows the page as a CloudWatch custom widget.

The section "Details about custom widgets" in the Amazon CloudWatch User Guide describes the contract of such widgets.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import Theme, fragment

DESCRIPTION = """## Evenkeel
Incidents, the worst first, and what to do; of one cluster its pools and zones too. Read-only.

### Widget parameters
Param | Description
---|---
**cluster** | The id of a registered cluster, which is read now. Left out: all clusters, from their stored health.

### Example parameters
```yaml
cluster: blue
```
"""


def theme_of(params: Mapping[str, Any]) -> Theme:
    """Return the theme of the console; light if the request names none."""
    context = params.get("widgetContext")
    theme = context.get("theme") if isinstance(context, Mapping) else None
    return Theme.DARK if theme == Theme.DARK else Theme.LIGHT


def page_for(answer: Mapping[str, Any], theme: Theme, now: datetime) -> str:
    """Return the answer to ``status`` as HTML for the console."""
    return fragment(page_of_status(answer, "answer of this stack", now), theme)
