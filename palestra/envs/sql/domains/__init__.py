"""The generated domains, by name."""

from __future__ import annotations

from palestra.envs.sql.domain import Domain
from palestra.envs.sql.domains import flights, hospital, library, school, shop

DOMAINS: dict[str, Domain] = {
    module.DOMAIN.name: module.DOMAIN for module in (shop, library, school, flights, hospital)
}
