"""Colours and layout. Every colour that text is written in is held to WCAG's contrast of 4.5 by a test."""

from enum import StrEnum


class Theme(StrEnum):
    """Light, dark, or what the reader's device prefers."""

    AUTO = "auto"
    LIGHT = "light"
    DARK = "dark"


PALETTES = {
    Theme.LIGHT: {
        "ground": "#f4f5f7",
        "card": "#ffffff",
        "line": "#d5d9e0",
        "text": "#1b2029",
        "soft": "#565f6e",
        "healthy": "#17713a",
        "fenced": "#b3261e",
        "probing": "#8a5a00",
        "frozen": "#1f5fb0",
        "range": "#e4e8ee",
        "zone-0": "#5566bd",
        "zone-1": "#a9bde6",
        "zone-2": "#2b8894",
        "zone-3": "#b673b4",
        "zone-4": "#86d3d0",
        "zone-5": "#6b4a90",
    },
    Theme.DARK: {
        "ground": "#0f1318",
        "card": "#181d24",
        "line": "#323a45",
        "text": "#e6e9ee",
        "soft": "#9ea8b6",
        "healthy": "#56c27c",
        "fenced": "#ff8379",
        "probing": "#e2b04a",
        "frozen": "#7db4f5",
        "range": "#2a313b",
        "zone-0": "#7d8ce0",
        "zone-1": "#3f568f",
        "zone-2": "#4fb3bf",
        "zone-3": "#cf92cd",
        "zone-4": "#2f6f72",
        "zone-5": "#a184cb",
    },
}
ZONE_COLOURS = 6  # none of them near the colour of a state

_RULES = """
.ek.page{margin:0}
.ek figure{margin:0}
.ek .name{display:block;font-weight:400;font-size:13px}
.ek{color:var(--text);background:var(--ground);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;
font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%;overflow-wrap:anywhere}
.ek *{box-sizing:border-box}
.ek header,.ek main,.ek footer{max-width:1120px;margin:0 auto;padding:0 20px}
.ek header{padding-top:28px}
.ek [hidden]{display:none!important}
.ek a{color:var(--frozen)}
.ek code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,"Liberation Mono",monospace;background:var(--ground);
border-radius:4px;padding:2px 5px}
.ek .headline{font-size:18px;font-weight:600}
.ek .tools{display:flex;flex-wrap:wrap;gap:8px 18px;align-items:center;margin:16px 0}
.ek .tools input,.ek .tools select{font:inherit;color:inherit;background:var(--card);border:1px solid var(--soft);
border-radius:6px;padding:5px 8px;max-width:100%}
.ek .names{list-style:none;padding:0;columns:14em}
.ek .cluster{margin-top:24px}
.ek .card>h2{margin:0 0 6px}
.ek summary h2{display:inline;margin:0}
.ek .of-trouble{color:var(--fenced);font-weight:600}
.ek .troubles{list-style:none;border-left:4px solid var(--fenced)}
.ek .troubles>li+li{border-top:1px solid var(--line);padding-top:12px;margin-top:12px}
.ek .troubles .bar{max-width:420px}
.ek h1{font-size:26px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
.ek h2{font-size:20px;line-height:1.25;margin:36px 0 4px}
.ek h3{font-size:17px;margin:0}
.ek h4{font-size:14px;margin:0 0 14px}
.ek figure+figure{margin-top:24px}
.ek p{margin:4px 0}
.ek ul,.ek ol{margin:4px 0;padding-left:20px}
.ek time,.ek .nowrap{white-space:nowrap}
.ek .soft{color:var(--soft)}
.ek .card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin:14px 0}
.ek .card.fences{border-left:4px solid var(--fenced)}
.ek .card.unread{border-left:4px solid var(--probing)}
.ek .fences ul{list-style:none;padding:0}
.ek .fences li{padding:6px 0;border-top:1px solid var(--line)}
.ek .fences li:first-child{border-top:0}
.ek .countdown{font-weight:600;color:var(--fenced)}
.ek .problem{color:var(--fenced);font-weight:600}
.ek .warning{color:var(--probing);font-weight:600}
.ek .facts{display:flex;flex-wrap:wrap;gap:2px 18px;margin:4px 0 10px;color:var(--soft)}
.ek .facts b{color:var(--text);font-weight:600}
.ek .state{font-weight:600;white-space:nowrap}
.ek .healthy{color:var(--healthy)}.ek .fenced{color:var(--fenced)}
.ek .probing{color:var(--probing)}.ek .frozen{color:var(--frozen)}
.ek table{width:100%;border-collapse:collapse;border-spacing:0;background:none;color:inherit;font:inherit}
.ek th,.ek td{text-align:left;vertical-align:top;padding:8px 10px 4px 0;border:0;background:none;color:inherit;
font-size:inherit}
.ek th{font-weight:600}
.ek .pools th{min-width:9em}
.ek .pools thead .number{min-width:0}
.ek thead th{color:var(--soft);font-size:12px;font-weight:600;padding:4px 10px 4px 0;white-space:nowrap}
.ek .number{text-align:right;white-space:nowrap}
.ek tbody tr:not(.why){border-top:1px solid var(--line)}
.ek .why td{padding-top:0;padding-bottom:10px;color:var(--soft);font-size:13.5px}
.ek .why ul{padding-left:16px;margin:0}
.ek td.bar{width:38%;min-width:150px;padding-top:7px}
.ek svg{display:block;overflow:visible}
.ek svg text{fill:var(--text);font-size:12.5px;font-weight:600}
.ek .range{stroke:var(--range);stroke-width:8}
.ek .running{fill:currentColor}
.ek .waiting{fill:currentColor;fill-opacity:.28;stroke:currentColor;stroke-width:1;stroke-dasharray:3 2}
.ek .mark{fill:none;stroke:var(--text);stroke-width:2}
.ek .pool-max{stroke:var(--text);stroke-width:1.5;stroke-dasharray:5 4;fill:none}
.ek .demand{stroke:var(--text);stroke-width:2;fill:none}
.ek .grid{stroke:var(--line);stroke-width:1}
.ek .pool-max,.ek .demand,.ek .area{vector-effect:non-scaling-stroke}
.ek .area{stroke:var(--card);stroke-width:1;stroke-linejoin:round}
.ek .legend{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--soft);font-size:13px;margin:10px 0 0;padding:0;
list-style:none}
.ek .legend li{display:flex;align-items:center;gap:6px}
.ek .legend svg{flex:none}
.ek .chart{display:grid;grid-template-columns:minmax(30px,max-content) minmax(0,1fr);gap:6px 10px;
font-size:12.5px;color:var(--soft)}
.ek .chart .y{display:flex;flex-direction:column;justify-content:space-between;align-items:flex-end;
height:182px;line-height:1;margin:-6px 0}
.ek .chart .x{display:flex;justify-content:space-between;grid-column:2}
.ek .chart .lane{display:flex;align-items:center;justify-content:flex-end;gap:6px;max-width:34vw;line-height:14px}
.ek .chart .lane svg{flex:none}
.ek .span-healthy{fill:var(--range)}.ek .span-fenced{fill:var(--fenced)}
.ek .span-probing{fill:var(--probing)}.ek .span-frozen{fill:var(--frozen)}
.ek .decisions{list-style:none;padding:0;margin:6px 0 0}
.ek .decisions>li{padding:8px 0;border-top:1px solid var(--line)}
.ek summary{cursor:pointer;font-weight:600;padding:4px 0}
.ek .scroll{overflow-x:auto}
.ek .scroll thead th{white-space:normal;overflow-wrap:normal;vertical-align:bottom}
.ek .scroll tbody th{overflow-wrap:normal}
.ek .scroll th,.ek .scroll td{padding-right:14px}
.ek .scroll:focus-visible,.ek summary:focus-visible,.ek a:focus-visible,.ek input:focus-visible,
.ek select:focus-visible{outline:2px solid var(--frozen);outline-offset:2px}
.ek footer{color:var(--soft);font-size:13px;padding:16px 20px 40px}
@media (max-width:680px){
.ek header,.ek main,.ek footer{padding-left:12px;padding-right:12px}
.ek .card{padding:12px}
.ek .rows table,.ek .rows tbody{display:block}
.ek .rows thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.ek .rows tr{display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline;padding:8px 0 4px}
.ek .rows th,.ek .rows td{display:block;padding:0}
.ek .rows th{flex:1 1 40%}
.ek .rows td.bar{width:100%;flex:1 0 100%;padding:5px 0}
.ek .rows td.number{text-align:left}
.ek .rows td.number::before{content:attr(data-label) " ";color:var(--soft)}
.ek .rows tr.why{border-top:0;padding:0 0 8px}
}
@media print{
.ek{background:#fff;font-size:12px}
.ek .tools,.ek .made,.ek .countdown{display:none}
.ek .card{border-color:#999}
.ek .decisions>li,.ek .troubles>li,.ek tr{break-inside:avoid}
.ek h2,.ek h3,.ek summary{break-after:avoid}
.ek thead{display:table-header-group}
.ek svg,.ek .legend{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""


def stylesheet(theme: Theme) -> str:
    """The whole style of a page. Everything is below ``.ek``, so that it leaves the page around a widget alone."""
    first = PALETTES[Theme.DARK if theme is Theme.DARK else Theme.LIGHT]
    sheet = _variables(first) + _RULES
    if theme is Theme.AUTO:
        # On paper the light colours hold, whatever the screen prefers.
        sheet += (
            "@page{margin:14mm}\n@media screen and (prefers-color-scheme:dark){"
            + _variables(PALETTES[Theme.DARK])
            + "}\n"
        )
    return sheet


def _variables(palette: dict[str, str]) -> str:
    return ".ek{" + "".join(f"--{name}:{colour};" for name, colour in palette.items()) + "}\n"
