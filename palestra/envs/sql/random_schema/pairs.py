"""Parts that the queries about a table and its parent have in common; `y` is the table's alias and `x` the parent's."""

# The names in the queries are constants of this package, so SQL injection is not possible.
# ruff: noqa: S608

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random

from palestra.envs.sql.random_schema.filters import Filter
from palestra.envs.sql.random_schema.schema import Column, Schema, Table


@dataclass(frozen=True)
class Pair:
    """A table and its parent."""

    child: Table
    parent: Table

    @cached_property
    def key(self) -> str:
        """The column that refers to the parent."""
        return f"y.{self.child.parent_key}"

    @cached_property
    def label(self) -> str:
        """The column that identifies the parent in an answer."""
        return f"x.{self.parent.label.sql}"

    @cached_property
    def match(self) -> str:
        """The join condition between a row and its parent."""
        return f"{self.key} = x.{self.parent.key}"

    @cached_property
    def joined(self) -> str:
        """Join of all parents with their rows, for a FROM clause."""
        return f"{self.parent.sql} x JOIN {self.child.sql} y ON {self.match}"

    @cached_property
    def rows_with_parent(self) -> str:
        """Join of all rows with their parents, for a FROM clause."""
        return f"{self.child.sql} y JOIN {self.parent.sql} x ON x.{self.parent.key} = {self.key}"

    def per_parent(self, values: str, condition: Filter) -> str:
        """Return a query for values that are computed per parent, with an aggregate in `values`."""
        return f"SELECT {self.label}, {values} FROM {self.joined}{condition.where()} GROUP BY x.{self.parent.key}"

    def from_groups(self, value: str, condition: Filter, name: str = "v") -> str:
        """Return a query equivalent to `per_parent`, which groups the rows before it joins their parents."""
        groups = f"SELECT {self.key} AS k, {value} AS {name} FROM {self.child.sql} y{condition.where(alternative=True)}"
        parents = f"{self.parent.sql} x ON x.{self.parent.key} = k"
        return f"SELECT {self.label}, {name} FROM ({groups} GROUP BY 1) JOIN {parents}"

    def exists(self, condition: str) -> str:
        """Return a condition that is true if one of the parent's rows satisfies `condition`, which starts with AND."""
        return f"EXISTS (SELECT 1 FROM {self.child.sql} y WHERE {self.match}{condition})"

    def count(self, condition: Filter) -> str:
        """Return a subquery that counts a parent's rows."""
        return f"(SELECT COUNT(*) FROM {self.child.sql} y WHERE {self.match}{condition.also(alternative=True)})"


def pair(rng: Random, schema: Schema) -> Pair:
    """Return a random table and its parent."""
    return Pair(*rng.choice(schema.pairs))


def best(table: Table, alias: str, group: str, column: Column, condition: Filter, *, high: bool) -> tuple[str, str]:
    """Return a condition for the rows with the best value in their group, and the rank of a row in its group.

    Ties share the best value. `group` is the column that defines the groups.
    """
    name, key = f"{alias}.{column.sql}", f"{alias}.{group}"
    others = condition.renamed(alias, "o")
    value = f"SELECT {'MAX' if high else 'MIN'}(o.{column.sql}) FROM {table.sql} o WHERE o.{group} = {key}"
    rank = f"RANK() OVER (PARTITION BY {key} ORDER BY {name}{' DESC' if high else ''})"
    return f"{name} = ({value}{f' AND {others}' if others else ''}){condition.also()}", rank
