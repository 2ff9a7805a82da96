"""Run the code cells of a notebook in order, and store their output in the file with --write.

    python scripts/run_notebook.py examples/first_steps.ipynb --write

The value of a cell's last expression is stored as notebooks display it: as HTML if it has `_repr_html_`, otherwise as
text. The notebooks in examples/ need no kernel features, such as magic commands, so this needs no Jupyter.
"""

from __future__ import annotations

import argparse
import ast
import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any


def run(notebook: dict[str, Any], name: str) -> list[Any]:
    """Run all code cells, replace their outputs, and return the values of their last expressions."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    values = []
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        tree = ast.parse("".join(cell["source"]), f"{name}[{count}]")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed = StringIO()
        with redirect_stdout(printed), redirect_stderr(StringIO()):
            exec(compile(tree, f"{name}[{count}]", "exec"), namespace)
            value = None
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"{name}[{count}]", "eval"), namespace)
        cell["execution_count"] = count
        cell["outputs"] = _outputs(printed.getvalue(), value, count)
        values.append(value)
    return values


def _outputs(printed: str, value: Any, count: int) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        result = {"output_type": "execute_result", "metadata": {}, "execution_count": count, "data": data}
        outputs.append(result)
    return outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path, help="Notebook file (.ipynb).")
    parser.add_argument("--write", action="store_true", help="Store the outputs in the file.")
    args = parser.parse_args()
    notebook = json.loads(args.notebook.read_text())
    values = run(notebook, args.notebook.name)
    if args.write:
        args.notebook.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    print(f"{args.notebook}: {len(values)} cells")


if __name__ == "__main__":
    main()
