"""Test that WebShop's files are read correctly, using small files in the same format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.envs.webshop.env import WebShop
from palestra.envs.webshop.files import read_goals, read_products
from palestra.errors import BadValue, DataMissing

ITEMS: list[dict[str, Any]] = [
    {
        "name": "Kettle Falls Tea Tree Shampoo, Sulfate Free, 12 Fl Oz",
        "product_information": {"Brand": "Kettle Falls"},
        "brand": "Visit the store",
        "brand_url": "",
        "full_description": "A shampoo for every day.",
        "pricing": "$12.49",
        "list_price": "",
        "availability_quantity": None,
        "availability_status": "In Stock.",
        "images": ["https://images.example/1.jpg"],
        "product_category": "Beauty \u203a Hair Care \u203a Shampoos",
        "average_rating": 4.5,
        "small_description": ["Sulfate free and gentle.", "With tea tree."],
        "model": "",
        "customization_options": {
            "Size": [
                {"is_selected": False, "value": "12 Fl Oz", "image": None},
                {"value": "24/2 Fl Oz", "image": None},
            ],
            "Scent": [{"value": "Mint ", "image": None}, {"value": "Rose [new]", "image": None}],
            "Color": None,
        },
        "seller_id": "",
        "seller_name": "",
        "fulfilled_by_amazon": None,
        "fast_track_message": "",
        "aplus_present": "",
        "asin": "B00SHAMPOO",
        "category": "beauty",
        "query": " Shampoo ",
        "page": 1,
        "small_description_old": "",
        "total_reviews": 3,
    },
    {
        "name": "Larkmoor Wall Lamp",
        "full_description": "",
        "pricing": "$1,019.99$1,200.00",
        "images": ["https://images.example/2.jpg"],
        "product_category": "Home \u203a Lighting \u203a Lamps",
        "small_description": "Glass shade",
        "customization_options": "",
        "asin": "B00WALLAMP",
        "category": "garden",
        "query": "wall lamp",
    },
    {
        "name": "Plain Tin Box",
        "full_description": None,
        "pricing": "",
        "images": [""],
        "product_category": "Home",
        "small_description": [],
        "customization_options": {},
        "asin": "B00000TBOX",
        "category": "garden",
        "query": "tin box",
    },
    {"asin": "nan", "name": "ignored"},
]
ATTRIBUTES = {
    "B00SHAMPOO": {
        "attributes": ["tea tree", "sulfate free"],
        "instruction": "Find me a sulfate free shampoo",
        "instruction_attributes": ["sulfate free"],
    },
    "B00WALLAMP": {"attributes": ["glass shade"], "instruction": None, "instruction_attributes": None},
}
HUMAN = {
    "B00SHAMPOO": [
        {
            "asin": "B00SHAMPOO",
            "instruction": "i want a sulfate free shampoo that smells of mint.",
            "attributes": ["sulfate free"],
            "options": ["mint"],
            "instruction_attributes": ["sulfate free"],
            "instruction_options": ["mint"],
        },
        {
            "asin": "B00SHAMPOO",
            "instruction": "i need a rose shampoo",
            "instruction_attributes": ["tea tree"],
            "instruction_options": ["rose [new]", "24 | 2 fl oz"],
        },
        {"instruction": "skipped: no attributes", "instruction_attributes": [], "instruction_options": []},
    ],
    "B00WALLAMP": [
        {"instruction": "i want a lamp", "instruction_attributes": ["glass shade"], "instruction_options": []}
    ],
}
REVIEWS = [
    {
        "asin": "B00SHAMPOO",
        "average_rating": "4.5",
        "reviews": [{"title": "Good", "stars": "5.0", "review": "My hair is soft."}],
    }
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "items_shuffle.json": ITEMS,
        "items_ins_v2.json": ATTRIBUTES,
        "items_human_ins.json": HUMAN,
        "reviews.json": REVIEWS,
    }
    for name, rows in files.items():
        (tmp_path / name).write_text(json.dumps(rows))
    return tmp_path


def test_products_are_read_as_webshop_reads_them(folder: Path) -> None:
    shampoo, lamp, box = read_products(folder, None)
    assert shampoo.query == "shampoo"
    assert shampoo.options == (("size", ("12 fl oz", "24 | 2 fl oz")), ("scent", ("mint", "rose [new]")))
    assert (shampoo.price, shampoo.price_tag, shampoo.rating) == (12.49, "$12.49", "4.5")
    assert shampoo.reviews[0].body == "My hair is soft."
    assert shampoo.attributes == ("tea tree", "sulfate free")
    assert lamp.price_tag == "$1019.99 to $1200.0"
    assert 1019.99 <= lamp.price <= 1200
    assert lamp.bullet_points == ("Glass shade",)
    assert (box.price, box.price_tag, box.attributes, box.rating) == (100.0, "$100.0", (), "N.A.")
    assert read_products(folder, None)[1].price == lamp.price  # the price sampled from the range is reproducible


def test_human_and_generated_goals(folder: Path) -> None:
    catalogue = read_products(folder, None)
    human = read_goals(folder, catalogue, human=True)
    assert [goal.attributes for goal in human] == [("sulfate free",), ("tea tree",), ("glass shade",)]
    assert human[0].instruction.startswith("i want a sulfate free shampoo that smells of mint, and price lower than ")
    assert human[0].price_upper in (30.0, 40.0, 50.0)
    assert human[2].instruction == "i want a lamp"  # a price limit above 990 dollars is not mentioned
    generated = read_goals(folder, catalogue, human=False)
    assert len(generated) == 4  # one for each combination of size and scent
    assert {goal.options for goal in generated} == {
        (scent, size) for scent in ("mint", "rose [new]") for size in ("12 fl oz", "24 | 2 fl oz")
    }
    assert "with scent: mint, and size: 12 fl oz, and price lower than" in generated[0].instruction


@pytest.mark.parametrize("human", [True, False])
def test_goals_can_be_solved(folder: Path, human: bool) -> None:
    env = palestra.make("webshop:Shop-v0", folder=str(folder), products=None, human=human, data_split="all")
    inner = env.unwrapped
    assert isinstance(inner, WebShop)
    for seed in range(len(inner.shop.goals)):
        env.reset(seed=seed)
        step = env.step(env.expert_action() or "")
        while not step.done:
            step = env.step(env.expert_action() or "")
        assert step.reward == 1.0


def test_snapshots_refer_to_the_folder(folder: Path) -> None:
    env = palestra.make("webshop:Shop-v0", folder=str(folder), products=None, data_split="all")
    env.reset(seed=0)
    moved = palestra.Env.restore(env.snapshot())
    assert moved.step("search[shampoo]") == env.step("search[shampoo]")


def test_an_edited_file_is_read_again(folder: Path) -> None:
    first = palestra.make("webshop:Shop-v0", folder=str(folder), products=None, data_split="all")
    (folder / "items_human_ins.json").write_text(json.dumps({"B00SHAMPOO": HUMAN["B00SHAMPOO"][:1]}))
    second = palestra.make("webshop:Shop-v0", folder=str(folder), products=None, data_split="all")
    assert len(first.shop.goals) == 3  # type: ignore[attr-defined]
    assert len(second.shop.goals) == 1  # type: ignore[attr-defined]


def test_missing_or_malformed_files_raise(folder: Path) -> None:
    (folder / "items_human_ins.json").unlink()
    with pytest.raises(DataMissing, match="items_human_ins.json"):
        palestra.make("webshop:Shop-v0", folder=str(folder), products=None)
    (folder / "items_shuffle.json").write_text(json.dumps([{"asin": "B000000001", "name": "x"}]))
    with pytest.raises(BadValue, match="item 0"):
        palestra.make("webshop:Shop-v0", folder=str(folder), products=None, human=False)
    (folder / "items_shuffle.json").write_text("{")
    with pytest.raises(BadValue, match="not valid JSON"):
        palestra.make("webshop:Shop-v0", folder=str(folder), products=None, human=False)
    with pytest.raises(DataMissing, match="items_shuffle"):
        palestra.make("webshop:Shop-v0", folder=str(folder / "nowhere"), products=None)


def test_goals_of_files_have_the_order_of_webshop(folder: Path) -> None:
    import random

    products = read_products(folder, None)
    expected = read_goals(folder, products, human=False)
    random.seed(233)
    random.shuffle(expected)
    env: Any = palestra.make("webshop:Shop-v0", folder=str(folder), products=None, human=False, data_split="all")
    shop = env.unwrapped.shop
    assert shop.goals == expected
    shop.goals = expected * (2_000 // len(expected) + 1)
    assert shop.split("test") == range(500)
    assert shop.split("dev") == range(500, 1_500)
    assert shop.split("train") == range(1_500, len(shop.goals))
