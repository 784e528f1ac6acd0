"""The code of a page of the guide that needs a device: its blocks with this mark form one program."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
page, mark = ROOT / "docs/guide" / sys.argv[1], sys.argv[2]
text = page.read_text()
lines = [""] * text.count("\n")
blocks = list(re.finditer(rf"^```python {mark}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
assert blocks, f"{page} has no block of {mark}"
for block in blocks:
    first = text.count("\n", 0, block.start(1))
    code = block.group(1).splitlines()
    lines[first : first + len(code)] = code
exec(compile("\n".join(lines) + "\n", str(page), "exec"), {"__name__": "__main__"})
print(f"{len(blocks)} blocks of {page.name}")
