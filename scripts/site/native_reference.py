"""The pages of the C and Lua reference, from the committed headers and from the comments of the modules."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HEADERS = {"c": "bindings/c/include/unisono.h", "c-multiverso": "bindings/c/include/multiverso/c_api.h"}
MODULES = [
    ("unisono", "bindings/lua/unisono/init.lua"),
    ("ArrayTable", "bindings/lua/unisono/ArrayTable.lua"),
    ("MatrixTable", "bindings/lua/unisono/MatrixTable.lua"),
    ("multiverso", "bindings/lua/multiverso/init.lua"),
]
# A comment and its declaration, which ends with a semicolon outside braces, or with the line of a macro.
DECLARATION = re.compile(
    r"^/\*\*\n(?P<comment>.*?)^ \*/\n"
    r"(?P<code>#define [^\n]*|typedef (?:enum|struct) \{.*?^\}[^;]*;|[^#/]*?;)$",
    re.MULTILINE | re.DOTALL,
)
NAMED = [r"#define (\w+)", r"\} (\w+);", r"typedef [^(;]*?(\w+);", r"(\w+)\("]
LUA = re.compile(r"((?:^---?.*\n)+)((?:^(?:function |unisono\.)\w.*\n)+)", re.MULTILINE)


def prose(comment: str, marker: str) -> str:
    """Returns the text of a comment without its markers."""
    return re.sub(marker, "", comment, flags=re.MULTILINE).strip()


def declared(code: str) -> str:
    """Returns the name that a declaration of C defines."""
    for pattern in NAMED:
        if match := re.search(pattern, code):
            return match[1]
    raise ValueError(f"no name in the declaration: {code}")


def c_page(path: str) -> str:
    """Returns the page of a header: its types and constants, then its functions in their order."""
    text = (ROOT / path).read_text()
    opening = prose(text.split("*/")[0].removeprefix("/*"), r"^ \* ?")
    kinds: dict[str, list[str]] = {"Types and constants": [], "Functions": []}
    for match in DECLARATION.finditer(text):
        code = match["code"].strip()
        kind = (
            "Functions" if declared(code) + "(" in code and "typedef" not in code else "Types and constants"
        )
        about = prose(match["comment"], r"^ \* ?")
        kinds[kind].append(f"### {declared(code)}\n\n{about}\n\n```c\n{code}\n```\n")
    sections = [f"## {kind}\n\n" + "\n".join(entries) for kind, entries in kinds.items()]
    source = f"Generated from `{path}`. The guide: [C and Lua](../docs/guide/c-and-lua.md)."
    return f"# {path.removeprefix('bindings/c/include/')}\n\n{opening}\n\n{source}\n\n" + "\n".join(sections)


def lua_page() -> str:
    """Returns the page of the Lua modules: each function with its comment."""
    parts = ["# Lua\n\nThe guide: [C and Lua](../docs/guide/c-and-lua.md#lua).\n"]
    for module, path in MODULES:
        text = (ROOT / path).read_text()
        parts.append(f"## {module}\n\n{text.splitlines()[0].removeprefix('--- ')}\n")
        parts += [lua_entry(match[1], match[2]) for match in LUA.finditer(text)]
        if module == "MatrixTable":
            shared = (ROOT / "bindings/lua/unisono/shared.lua").read_text()
            parts.append("## Methods of all tables\n")
            found = [match for match in LUA.finditer(shared) if re.search(METHOD, match[2])]
            parts += [lua_entry(match[1], re.sub(METHOD, r"table:\1(", match[2])) for match in found]
    return "\n".join(parts)


# Functions that tables inherit get the table as `self`; get and add have their own entries.
METHOD = r"shared\.(?!get\b|add\b)(\w+)\(self(?:, )?"


def lua_entry(comment: str, code: str) -> str:
    """Returns the entry of one function, or of several that share a comment."""
    text = re.sub(r"^---? ?", "", comment, flags=re.MULTILINE).strip()
    text = re.sub(r"^@param (.+?) (?=\S)", r"\n- `\1`: ", text, flags=re.MULTILINE)
    text = re.sub(r"(\n- .*)\n\n(?=- )", r"\1\n", text)
    lines = [line.removeprefix("function ").strip() for line in code.splitlines() if line.strip()]
    names = [re.sub(r" = .*", "()", line) for line in lines]
    heading = ", ".join(f"`{re.split('[(]', name)[0]}`" for name in names)
    return f"### {heading}\n\n```lua\n" + "\n".join(names) + f"\n```\n\n{text}\n"


def rust_page() -> str:
    """Returns the page about Rust: links, if its documentation was built, or how to build it."""
    if not (ROOT / "target/doc/unisono/index.html").exists():
        how = "run `make docs` and then `make site` to include it."
        return f"# Rust\n\nThis site was built without the Rust documentation: {how}\n"
    names = [("unisono", "worlds, collectives, tables and halos"), ("unisono_nn", "experiments")]
    rows = [f'- <a href="../rust/{name}/index.html"><code>{name}</code></a>: {what}.' for name, what in names]
    return "# Rust\n\n" + "\n".join(rows) + "\n"


def pages() -> dict[str, str]:
    """Returns the text of each page, by its path on the site."""
    made = {f"reference/{name}.md": c_page(path) for name, path in HEADERS.items()}
    return {**made, "reference/lua.md": lua_page(), "reference/rust.md": rust_page()}
