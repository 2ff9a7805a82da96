"""The process in which django-oscar answers requests: `python -m palestra.envs.web.store.server`.

Commands arrive on the standard input and replies leave on the standard output, each as a line of JSON followed by as
many bytes as its field `size` states. Every request names the database of its episode and the time on its clock, so one
process serves all episodes. Nothing depends on chance: random strings depend only on the request's number.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from palestra.envs.web.store.build import SESSION, create_tables, dollars, fill
from palestra.envs.web.store.content import SHIPPING
from palestra.envs.web.store.search import use_database

CDN = b'<script src="https://ajax.googleapis.com/ajax/libs/jquery/3.7.1/jquery.min.js"></script>'  # there is no network
MENU = (  # the pages of the dashboard that are in its menu
    "index",
    "catalogue-product-list",
    "catalogue-category-list",
    "stock-alert-list",
    "order-list",
    "order-stats",
    "users-index",
    "voucher-list",
    "reviews-list",
)


class Thumbnails:
    """Images of products: there are none, so the same one is used for all products."""

    def generate_thumbnail(self, source: object, **_: object) -> SimpleNamespace:  # noqa: ARG002
        return SimpleNamespace(url="/static/oscar/img/image_not_found.jpg")


def settings() -> dict[str, Any]:
    """Return the settings for Django."""
    import oscar
    from oscar import defaults

    given = {name: getattr(defaults, name) for name in dir(defaults) if name.startswith("OSCAR_")}
    menu = [
        {**item, "children": [child for child in item["children"] if _in_menu(child)]} if "children" in item else item
        for item in given["OSCAR_DASHBOARD_NAVIGATION"]
        if _in_menu(item) or any(map(_in_menu, item.get("children", ())))
    ]
    context = "django.template.context_processors"
    processors = [f"{context}.request", "django.contrib.auth.context_processors.auth", f"{context}.i18n"]
    processors += [f"{context}.static", "django.contrib.messages.context_processors.messages"]
    processors += ["oscar.apps.search.context_processors.search_form", "oscar.core.context_processors.metadata"]
    processors += ["oscar.apps.checkout.context_processors.checkout"]
    processors += ["oscar.apps.communication.notifications.context_processors.notifications"]
    apps = [name for name in oscar.INSTALLED_APPS if name != "django.contrib.admin"]
    labels = ["flatpages", "sites", "sessions", "auth", "contenttypes", "address", "analytics", "basket", "catalogue"]
    labels += ["checkout", "communication", "customer", "offer", "order", "partner", "payment", "reviews", "shipping"]
    labels += ["voucher", "wishlists", "oscar", "search"]
    return {
        **given,
        "SECRET_KEY": "a key for a shop without secrets",
        "ALLOWED_HOSTS": ["*"],
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "ATOMIC_REQUESTS": True}},
        "INSTALLED_APPS": apps,
        "MIGRATION_MODULES": dict.fromkeys(labels),  # the tables are created directly, in a tenth of the time
        "MIDDLEWARE": [
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
            "oscar.apps.basket.middleware.BasketMiddleware",
        ],
        "TEMPLATES": [
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": processors},
            }
        ],
        "AUTHENTICATION_BACKENDS": ["oscar.apps.customer.auth_backends.EmailBackend"],
        "CACHES": {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}},
        "MESSAGE_STORAGE": "django.contrib.messages.storage.session.SessionStorage",
        "EMAIL_BACKEND": "django.core.mail.backends.dummy.EmailBackend",
        "HAYSTACK_CONNECTIONS": {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}},
        "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
        "STATIC_URL": "/static/",
        "MEDIA_URL": "/media/",
        "SITE_ID": 1,
        "USE_TZ": True,
        "TIME_ZONE": "UTC",
        "LANGUAGE_CODE": "en-us",
        "LANGUAGES": [("en-us", "English")],
        "PHONENUMBER_DEFAULT_REGION": "US",
        "OSCAR_DASHBOARD_NAVIGATION": menu,
        "OSCAR_SHOP_NAME": "Tonehouse",
        "OSCAR_SHOP_TAGLINE": "Musical instruments",
        "OSCAR_DEFAULT_CURRENCY": "USD",
        "OSCAR_MODERATE_REVIEWS": True,
        "OSCAR_ALLOW_ANON_REVIEWS": False,
        "OSCAR_SEND_REGISTRATION_EMAIL": False,
        "OSCAR_INITIAL_ORDER_STATUS": "Pending",
        "OSCAR_INITIAL_LINE_STATUS": "Pending",
        "OSCAR_ORDER_STATUS_PIPELINE": {
            "Pending": ("Being processed", "Cancelled"),
            "Being processed": ("Shipped", "Cancelled"),
            "Shipped": ("Complete",),
            "Complete": (),
            "Cancelled": (),
        },
        "OSCAR_THUMBNAILER": f"{__spec__.name}.Thumbnails",
        "LOGGING_CONFIG": None,
    }


def _in_menu(item: dict[str, Any]) -> bool:
    return item.get("url_name", "").removeprefix("dashboard:") in MENU


def start() -> Callable[..., Iterable[bytes]]:
    """Load Django and django-oscar, and return the application."""
    import django
    from django.conf import settings as configured

    configured.configure(**settings())
    django.setup()
    from django.apps import apps
    from django.core.wsgi import get_wsgi_application
    from django.urls import include, path

    configured.ROOT_URLCONF = (
        path("i18n/", include("django.conf.urls.i18n")),
        path("", include(apps.get_app_config("oscar").urls[0])),
    )
    _add_shipping_methods()
    use_database()
    application: Callable[..., Iterable[bytes]] = get_wsgi_application()
    return application


def _add_shipping_methods() -> None:
    from oscar.apps.shipping.methods import FixedPrice, Free
    from oscar.apps.shipping.repository import Repository

    paid = [
        type(name, (FixedPrice,), {"code": name.lower(), "name": name})(dollars(cents), dollars(cents))
        for name, cents in SHIPPING.items()
        if cents
    ]
    Repository.methods = (Free(), *paid)


def use(database: str) -> None:
    """Connect Django to a database."""
    from django.db import connection

    connection.close()
    connection.settings_dict["NAME"] = database
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous = OFF")
        cursor.execute("PRAGMA journal_mode = MEMORY")


def static(path: str) -> bytes | None:
    """Return a file of django-oscar, or None."""
    import oscar

    root = Path(str(oscar.__file__)).parent.resolve() / "static"
    target = (root / unquote(path).removeprefix("/static/").replace("\0", "")).resolve()
    return target.read_bytes() if root in target.parents and target.is_file() else None


def answer(application: Callable[..., Iterable[bytes]], command: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
    parts = urlsplit(command["url"])
    environ = {
        "REQUEST_METHOD": command["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(parts.path or "/", "latin-1"),
        "QUERY_STRING": parts.query,
        "SERVER_NAME": parts.hostname or "",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in command["headers"].items():
        key = name.upper().replace("-", "_")
        environ["CONTENT_TYPE" if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    environ["HTTP_COOKIE"] = f"sessionid={SESSION}"
    reply: dict[str, Any] = {}

    def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
        reply.update(status=int(status.split()[0]), headers=headers)

    use(command["database"])
    chunks = application(environ, start_response)
    try:
        page = b"".join(chunks)
    finally:
        getattr(chunks, "close", lambda: None)()
    return reply, page.replace(CDN, b"")


def serve(commands: BinaryIO, replies: BinaryIO) -> None:
    """Carry out commands until the input ends."""
    import time_machine

    application = start()
    with time_machine.travel(datetime(2026, 3, 2, tzinfo=UTC), tick=False) as clock:
        for line in commands:
            command = json.loads(line)
            body = commands.read(command.get("size", 0))
            rng = random.Random(command.get("number", 0))
            secrets.choice = rng.choice
            secrets.token_bytes = rng.randbytes  # type: ignore[assignment]  # Django always passes a size
            clock.move_to(datetime.fromisoformat(command["time"]), tick=False)
            reply: dict[str, Any] = {}
            page = b""
            if command["name"] == "create":
                use(command["database"])
                create_tables()
            elif command["name"] == "fill":
                use(command["database"])
                fill(command["data_seed"])
            elif command["name"] == "static":
                file = static(command["path"])
                reply["found"], page = file is not None, file or b""
            else:
                reply, page = answer(application, command, body)
            replies.write(json.dumps({**reply, "size": len(page)}).encode() + b"\n" + page)
            replies.flush()


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not a reply
    serve(sys.stdin.buffer, output)
