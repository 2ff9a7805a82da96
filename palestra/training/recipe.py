"""Build a training config from keyword arguments, flags or a TOML recipe. Does not import torch.

A recipe overrides the defaults; flags and keyword arguments override the recipe. Settings may be nested in section
tables (`{"sampling": {"episodes": 64}}`) or flat by flag name (`{"episodes": 64}`). An unknown key raises BadValue with
a suggestion of the most similar known key.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from palestra.algorithms.base import Algorithm, AlgorithmConfig
from palestra.algorithms.registry import algorithm_names, get_algorithm, make_config, options_of, register
from palestra.errors import BadValue
from palestra.options import flat_name, kind_of
from palestra.suggestions import did_you_mean, suggest
from palestra.training.config import TrainConfig
from palestra.training.config_values import auto_value
from palestra.training.sections import SECTIONS

DEFAULT_ALGORITHM = "rebn"

# Section and field for every flat setting name outside of [algorithm].
FLAT = {flat_name(item): (section, item.name) for section, kind in SECTIONS.items() for item in fields(kind)}


def from_mapping(values: Mapping[str, Any]) -> TrainConfig:
    """Build a config from a mapping with flat settings, section tables, or both."""
    tables, flat = _split(values)
    if "system" in tables.get("sampling", {}):  # older recipes set the system prompt in [sampling]
        tables.setdefault("agent", {}).setdefault("system", tables["sampling"].pop("system"))
    imports = tables.get("env", {}).get("imports", flat.get("import", ()))
    if imports:
        from palestra.plugins import import_modules

        import_modules([imports] if isinstance(imports, str) else imports)
    options = dict(tables.pop("algorithm", {}))
    kind, given = resolve_algorithm(flat.pop("algorithm", options.pop("name", DEFAULT_ALGORITHM)))
    for key, value in flat.items():
        if key in FLAT:
            section, name = FLAT[key]
            tables.setdefault(section, {})[name] = value
        elif key in options_of(kind):
            options[key] = value
        else:
            raise BadValue(_unknown(key, kind))
    model = tables.get("model", {})
    trained, lora = not str(model.get("name", "default:")).startswith("default:"), bool(model.get("lora_rank"))
    for key, default in kind.defaults.items():
        section, name = FLAT[key]
        tables.setdefault(section, {}).setdefault(name, auto_value(default, key, {}, trained=trained, lora=lora))
    if given is not None and options:
        raise BadValue(f"pass either a config for {kind.name} or its options ({', '.join(options)}), not both")
    sections = {name: make_section(name, table) for name, table in tables.items()}
    config = given if given is not None else make_config(kind, _coerced(kind.config_class, options))
    return TrainConfig(algorithm=kind(config), **sections)


def resolve_algorithm(value: Any) -> tuple[type[Algorithm[Any]], AlgorithmConfig | None]:
    """Return the algorithm class for a name, class, config or instance, and the config if `value` contains one."""
    if isinstance(value, str):
        return get_algorithm(value), None
    if isinstance(value, Algorithm):
        return type(value), value.config
    if isinstance(value, type) and issubclass(value, Algorithm):
        if value.name not in algorithm_names():
            register(value)
        return value, None
    if isinstance(value, AlgorithmConfig):
        kinds = [get_algorithm(name) for name in algorithm_names()]
        kind = next((kind for kind in kinds if kind.config_class is type(value)), None)
        if kind is None:
            raise BadValue(f"no registered algorithm has the config class {type(value).__name__}; register it first")
        return kind, value
    raise BadValue(f"algorithm must be a name, an Algorithm class or a config, got {value!r}")


def read_recipe(path: str | Path) -> dict[str, Any]:
    """Return the tables in a TOML recipe."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        env = f"; to train on an environment, pass it as --env {path}" if ":" in str(path) else ""
        raise BadValue(f"the recipe {path} does not exist{env}") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise BadValue(f"{path} is not valid TOML: {err}") from err
    tables, flat = _split(data)
    if flat:
        known = [*SECTIONS, "algorithm"]
        key = next(iter(flat))
        if isinstance(flat[key], dict):
            raise BadValue(f"{path}: there is no table [{key}].{did_you_mean(key, known)} Tables: {', '.join(known)}")
        meant = suggest(key, FLAT)
        place = f"as [{FLAT[meant][0]}] {FLAT[meant][1]}" if meant else f"into a table ({', '.join(known)})"
        raise BadValue(f"{path}: {key!r} is outside of a table; write it {place}")
    return {name: dict(table) for name, table in tables.items()}


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables in `base`, updated with `override`; drop the algorithm options if the algorithm changes."""
    merged: dict[str, Any] = {name: dict(table) for name, table in base.items()}
    algorithm = override.get("algorithm")
    if algorithm is not None and merged.get("algorithm", {}).get("name") != algorithm:
        merged["algorithm"] = {"name": algorithm}
    for key, value in override.items():
        if key == "algorithm":
            continue
        if key in FLAT:
            section, name = FLAT[key]
            merged.setdefault(section, {})[name] = value
        else:
            kind, _ = resolve_algorithm(merged.get("algorithm", {}).get("name", DEFAULT_ALGORITHM))
            names = {flat_name(item): item.name for item in fields(kind.config_class)}
            merged.setdefault("algorithm", {})[names.get(key, key)] = value
    return merged


def _split(values: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Separate section tables from flat settings."""
    tables: dict[str, dict[str, Any]] = {}
    flat: dict[str, Any] = {}
    for key, value in values.items():
        is_table = isinstance(value, Mapping) and (key in SECTIONS or key == "algorithm")
        if is_table and not (key == "env" and any(":" in name for name in value)):  # {"game:A": weight}
            tables[key] = dict(value)
        else:
            flat[key] = value
    return tables, flat


def make_section(name: str, table: Mapping[str, Any]) -> Any:
    """Build the section `name` of a config from a table; raise BadValue for an unknown setting."""
    kind = SECTIONS[name]
    known = {key: item.name for item in fields(kind) for key in (item.name, flat_name(item))}
    for key in table:
        if key not in known:
            hint = _place_of(key) if key in FLAT else did_you_mean(key, known) or _place_of(key)
            raise BadValue(
                f"[{name}] has no setting {key!r}.{hint} Its settings: {', '.join(dict.fromkeys(known.values()))}."
            )
    return kind(**_coerced(kind, {known[key]: value for key, value in table.items()}))


def _place_of(key: str) -> str:
    """Return a sentence that names the table of a setting, or an empty string if no setting is similar to `key`."""
    meant = suggest(key, FLAT)
    if meant is None:
        return ""
    table, name = FLAT[meant]
    return f" It is a setting of [{table}]." if name == key else f" Did you mean {name} in [{table}]?"


def _coerced(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to the types of their fields if TOML, JSON or the command line cannot express those types."""
    names = {key: item.name for item in fields(kind) for key in (item.name, flat_name(item))}
    coerced = dict(values)
    for key, value in values.items():
        expected = kind_of(kind, names[key]) if key in names else object
        if expected is dict and isinstance(value, str):
            coerced[key] = _json_object(key, value)
        elif expected is tuple and isinstance(value, Mapping):
            coerced[key] = tuple(f"{name}={weight}" for name, weight in value.items())
        elif names.get(key) == "horizon" and type(value) is int:
            coerced[key] = str(value)
    return coerced


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadValue(f'{name} must be a JSON object such as {{"max_turns": 12}}, got {text!r}')
    return value


def _unknown(key: str, kind: type[Algorithm[Any]]) -> str:
    owners = [name for name in algorithm_names() if key in options_of(name)]
    if owners:
        return f"{kind.name} has no option {key!r}; it is an option of {', '.join(owners)}"
    known = [*FLAT, *options_of(kind), "algorithm"]
    return f"no setting named {key!r}.{did_you_mean(key, known)} `palestra train --help-all` lists all settings."
