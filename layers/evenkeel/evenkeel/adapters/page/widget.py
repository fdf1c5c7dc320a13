"""The page as a CloudWatch custom widget: what the console asks, and what it is told.

The contract: "Details about custom widgets", Amazon CloudWatch User Guide.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import fragment
from evenkeel.adapters.page.theme import Theme

DESCRIPTION = """## Evenkeel
What is in trouble, the worst first, and what to do; of one cluster its pools and zones too. Reads only.

### Widget parameters
Param | Description
---|---
**cluster** | The id of a registered cluster, which is looked at now. Left out: all of them, from what is remembered.

### Example parameters
```yaml
cluster: blue
```
"""


def theme_of(params: Mapping[str, Any]) -> Theme:
    """The console's own theme; light where it does not say."""
    context = params.get("widgetContext")
    theme = context.get("theme") if isinstance(context, Mapping) else None
    return Theme.DARK if theme == Theme.DARK else Theme.LIGHT


def page_for(answer: Mapping[str, Any], theme: Theme, now: datetime) -> str:
    """The answer to ``status`` as HTML for the console."""
    return fragment(page_of_status(answer, "answer of this stack", now), theme)
