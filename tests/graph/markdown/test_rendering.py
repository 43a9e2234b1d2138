"""Markdown as HTML: what is rendered, and that hostile texts only show."""

import re
from html.parser import HTMLParser

import pytest

from graph.rules.markdown import rendering
from graph.rules.markdown.rendering import LinkBase, Reference, ReferenceLink, parse, render

BASE = LinkBase("https://forge.example/git/ada/mill", "main", "docs")
UPLOAD = "/uploads/0123456789abcdef0123456789abcdef"
REL = 'rel="noopener noreferrer nofollow"'


def html_of(text: str, links: dict[Reference, ReferenceLink] | None = None) -> str:
    return render(parse(text), links or {}, BASE).strip()


RENDERED = {
    "# One\n\n**two** _three_ ~~four~~ `five`": "<h1>One</h1>\n<p><strong>two</strong> <em>three</em> <s>four</s> <code>five</code></p>",
    "```python\na < b\n```": "<pre><code>a &lt; b\n</code></pre>",
    "See https://a.example/x_y_z.": f'<p>See <a href="https://a.example/x_y_z" {REL}>https://a.example/x_y_z</a>.</p>',
    "[x](b.md#c)": f'<p><a href="https://forge.example/git/ada/mill/files/docs/b.md?ref=main#c" {REL}>x</a></p>',
    "[x](../../../../b.md)": f'<p><a href="https://forge.example/git/ada/mill/files/b.md?ref=main" {REL}>x</a></p>',
    f"![a]({UPLOAD}/a.png)": f'<p><img src="https://forge.example/git/ada/mill{UPLOAD}/a.png" alt="a"></p>',
    f"![a]({UPLOAD}/a.svg)": f'<p><a href="https://forge.example/git/ada/mill{UPLOAD}/a.svg" {REL}>a</a></p>',
    "![a](b.svg)": f'<p><a href="https://forge.example/git/ada/mill/files/docs/b.svg?ref=main" data-image="" {REL}>a</a></p>',
    "![a](https://spy.example/a.png)": f'<p><a href="https://spy.example/a.png" {REL}>a</a></p>',
}

HOSTILE = (
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](<javascript:alert(1)>)",
    "<javascript:alert(1)>",
    "[x](vbscript:x)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](data:image/svg+xml,<svg onload=alert(1)>)",
    "![x](javascript:alert(1))",
    "[x]: javascript:alert(1)\n\n[x]",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg onload=alert(1)>",
    "<math><mtext></table><mglyph><style><img src=x onerror=alert(1)>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<form action=/x><input name=y>",
    "</p></div><style>*{display:none}</style>",
    '[x](https://a.example "\\" onclick=alert(1) \\"")',
    '[x](https://a.example/"onclick="alert(1))',
    '![x" onerror="alert(1)](https://a.example/a.png)',
    "https://a.example/\"onmouseover='alert(1)",
    '`<script>` "><script>alert(1)</script>',
    "| <script>alert(1)</script> |\n|:-|\n| <b onclick=x> |",
    "- [x] <input type=image src=x onerror=alert(1)>",
    "@<script>alert(1)</script> #<b> !<i>",
)

NESTED = (">" * 20_000, "- " * 20_000, "[" * 20_000, "**a" * 5_000, "![" * 5_000, "`" * 20_000, "|" * 20_000 + "\n" + "|-" * 20_000)


class HtmlAudit(HTMLParser):
    """Collects the elements and attributes of HTML as a browser would see them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def assert_only_shows(html: str) -> None:
    for tag, attributes in HtmlAudit(html).elements:
        assert tag in rendering.TAGS
        assert set(attributes) <= rendering.ATTRIBUTES.get(tag, set()) | {"rel", "type"}
        for name in ("href", "src"):
            assert re.match(r"https?://|mailto:|#", attributes.get(name) or "#"), attributes
        assert tag != "img" or (attributes["src"] or "").startswith(BASE.project_url + "/uploads/")
        assert tag != "input" or attributes["type"] == "checkbox"


class TestRendering:
    @pytest.mark.parametrize("text", RENDERED)
    def test_writes_html(self, text: str) -> None:
        assert html_of(text) == RENDERED[text]

    def test_tables_and_tasks(self) -> None:
        assert '<td align="right">1</td>' in html_of("| a |\n|-:|\n| 1 |")
        html = html_of("- [x] done\n- [ ] open\n\n[x] no task")
        assert [attributes.get("aria-label") for tag, attributes in HtmlAudit(html).elements if tag == "input"] == ["Done", "To do"]
        assert "[x] no task" in html


class TestHostileTexts:
    @pytest.mark.parametrize("text", HOSTILE)
    def test_only_show(self, text: str) -> None:
        assert_only_shows(html_of(text))

    @pytest.mark.parametrize("number", range(len(NESTED)))
    def test_nesting_is_bounded(self, number: int) -> None:
        html = html_of(NESTED[number])
        assert_only_shows(html)
        assert len(HtmlAudit(html).elements) <= 6_000

    def test_a_long_text_is_shown_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rendering, "MAX_CHARACTERS", 20)
        assert html_of("**x** <b>" + " #1" * 20) == f"<pre>**x** &lt;b&gt;{' #1' * 20}</pre>"


class TestReferences:
    def test_are_found_outside_code_and_links(self) -> None:
        text = "#7, ada/Mill!3: @dev. deadbeef `#8` [#9](x) a#1 /u/@no x@y.example #07 deadbeef-1\n\n    #10"
        assert parse(text).references == [
            Reference("#", "7"),
            Reference("!", "3", ("ada", "mill")),
            Reference("@", "dev"),
            Reference("", "deadbeef"),
        ]

    def test_become_links_with_what_they_name_on_hover(self) -> None:
        links = {Reference("#", "7"): ReferenceLink("https://forge.example/i/7", 'A "<b>" (opened)')}
        assert html_of("#7 #8", links) == (
            f'<p><a href="https://forge.example/i/7" title="A &quot;&lt;b&gt;&quot; (opened)" {REL}>#7</a> #8</p>'
        )

    def test_of_one_text_are_bounded(self) -> None:
        assert len(parse(" ".join(f"#{number}" for number in range(1, 200))).references) == rendering.MAX_REFERENCES
