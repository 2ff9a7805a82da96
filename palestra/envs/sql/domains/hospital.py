"""Domain for a hospital with wards, doctors, patients, stays and treatments."""

from __future__ import annotations

from random import Random
from typing import Any

from palestra.envs.sql.domain import EASY, HARD, MEDIUM, Domain, Names, Tables, Template
from palestra.envs.sql.domains.people import CITIES, people
from palestra.envs.sql.draw import Draw

_WARDS = (
    "Cardiology", "Dermatology", "Emergency", "Geriatrics", "Maternity", "Neurology", "Oncology", "Orthopaedics",
    "Paediatrics", "Radiology", "Surgery", "Urology",
)  # fmt: skip
_BLOOD_GROUPS = ("A", "B", "AB", "0")
_TREATMENTS = ("blood test", "x-ray", "ultrasound", "infusion", "physiotherapy", "consultation")


def _names(rng: Random) -> Names:
    every = people(rng, 16 + 70)
    return {"doctor": every[:16], "patient": every[16:], "city": rng.sample(CITIES, 6), "ward": rng.sample(_WARDS, 6)}


def _fill(draw: Draw, names: Names) -> Tables:
    wards = [
        (key, name, draw.integer(1, 6), draw.integer(8, 40))
        for key, name in zip(draw.keys(6), names["ward"], strict=True)
    ]
    staffed = wards[:5]
    doctors = [
        (key, name, draw.choice(staffed)[0], draw.day("2000-01-01", "2021-12-31"))
        for key, name in zip(draw.keys(16), names["doctor"], strict=True)
    ]
    patients = [
        (key, name, draw.day("1935-01-01", "2015-12-31"), draw.choice(names["city"]), draw.choice(_BLOOD_GROUPS))
        for key, name in zip(draw.keys(70), names["patient"], strict=True)
    ]
    admitted_patients, active = patients[:63], doctors[:14]
    stays: list[tuple[Any, ...]] = []
    treatments: list[tuple[Any, ...]] = []
    for key in sorted(draw.keys(draw.size(150))):
        admitted = draw.day("2023-01-01", "2024-11-30")
        left = None if draw.chance(0.07) else draw.later(admitted, 0, 21)
        stays.append((key, draw.choice(admitted_patients)[0], draw.choice(wards)[0], admitted, left))
        for _ in range(draw.integer(0, 4)):
            doctor, kind = draw.choice(active)[0], draw.choice(_TREATMENTS)
            treatments.append((len(treatments) + 1, key, doctor, kind, draw.integer(2, 90, 10)))
    return {"wards": wards, "doctors": doctors, "patients": patients, "stays": stays, "treatments": treatments}


DOMAIN = Domain(
    name="hospital",
    about="A hospital's patients, their stays and their treatments. discharged_on is NULL for patients who have not "
    "been discharged.",
    ddl=(
        (
            "CREATE TABLE wards (ward_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, floor INTEGER NOT NULL, "
            "beds INTEGER NOT NULL)"
        ),
        (
            "CREATE TABLE doctors (doctor_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, ward_id INTEGER NOT NULL "
            "REFERENCES wards, hired_on TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE patients (patient_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, born_on TEXT NOT NULL, "
            "city TEXT NOT NULL, blood_group TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE stays (stay_id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients, ward_id "
            "INTEGER NOT NULL REFERENCES wards, admitted_on TEXT NOT NULL, discharged_on TEXT)"
        ),
        (
            "CREATE TABLE treatments (treatment_id INTEGER PRIMARY KEY, stay_id INTEGER NOT NULL REFERENCES stays, "
            "doctor_id INTEGER NOT NULL REFERENCES doctors, kind TEXT NOT NULL, cost INTEGER NOT NULL)"
        ),
    ),
    slots={
        "group": ("A", "B", "AB", "0"),
        "treatment": _TREATMENTS,
        "year": (2023, 2024),
        "born": range(1945, 2011),
        "beds": range(10, 36),
        "days": range(3, 15),
        "count": (2, 3),
    },
    names=_names,
    fill=_fill,
    templates=(
        Template(
            EASY,
            "How many patients with blood group {group} live in {city}? Return one number.",
            "SELECT COUNT(*) FROM patients WHERE blood_group = {group} AND city = {city}",
            "SELECT SUM(blood_group = {group} AND city = {city}) FROM patients",
        ),
        Template(
            EASY,
            "Which wards have more than {beds} beds? Return their names, sorted by number of beds in descending order "
            "and then by name.",
            "SELECT name FROM wards WHERE beds > {beds} ORDER BY beds DESC, name",
            "SELECT name FROM (SELECT name, -beds AS b FROM wards WHERE beds >= {beds} + 1) ORDER BY b, name",
            ordered=True,
        ),
        Template(
            EASY,
            "Which patients were born before {born}? Return name and city.",
            "SELECT name, city FROM patients WHERE born_on < {born} || '-01-01'",
            "SELECT name, city FROM patients WHERE CAST(substr(born_on, 1, 4) AS INTEGER) < {born}",
            held_out=True,
        ),
        Template(
            EASY,
            "What is the total cost of the treatments of each kind? Return the kind and the sum.",
            "SELECT kind, SUM(cost) FROM treatments GROUP BY kind",
            "SELECT DISTINCT kind, SUM(cost) OVER (PARTITION BY kind) FROM treatments",
        ),
        Template(
            MEDIUM,
            "How many doctors work in the {ward} ward? Return one number.",
            "SELECT COUNT(*) FROM doctors JOIN wards USING (ward_id) WHERE wards.name = {ward}",
            "SELECT COUNT(*) FROM doctors WHERE ward_id = (SELECT ward_id FROM wards WHERE name = {ward})",
        ),
        Template(
            MEDIUM,
            "Which patients are currently in the {ward} ward, that is, admitted but not discharged? Return each name "
            "once.",
            "SELECT DISTINCT p.name FROM stays JOIN wards w USING (ward_id) JOIN patients p USING (patient_id) "
            "WHERE w.name = {ward} AND discharged_on IS NULL",
            "SELECT name FROM patients WHERE patient_id IN (SELECT patient_id FROM stays WHERE discharged_on IS NULL "
            "AND ward_id IN (SELECT ward_id FROM wards WHERE name = {ward}))",
            held_out=True,
        ),
        Template(
            MEDIUM,
            "For each ward, how many stays started in {year}? Include wards without such stays, with the number 0. "
            "Return the ward's name and the number.",
            "SELECT name, COUNT(stay_id) FROM wards LEFT JOIN stays ON stays.ward_id = wards.ward_id AND "
            "strftime('%Y', admitted_on) = '' || {year} GROUP BY wards.ward_id",
            "SELECT w.name, (SELECT COUNT(*) FROM stays s WHERE s.ward_id = w.ward_id AND s.admitted_on LIKE {year} "
            "|| '-%') FROM wards w",
        ),
        Template(
            MEDIUM,
            "Which doctors have never given a treatment? Return the names of the doctors and of their wards.",
            "SELECT d.name, w.name FROM doctors d JOIN wards w USING (ward_id) WHERE d.doctor_id NOT IN "
            "(SELECT doctor_id FROM treatments)",
            "SELECT d.name, w.name FROM doctors d JOIN wards w ON w.ward_id = d.ward_id LEFT JOIN treatments t ON "
            "t.doctor_id = d.doctor_id GROUP BY d.doctor_id HAVING COUNT(t.treatment_id) = 0",
        ),
        Template(
            HARD,
            "For each stay of {patient}, what was the total cost of the treatments? Include stays without treatments, "
            "with a total of 0. Return the date of admission and the total, sorted by date and then by total.",
            "SELECT admitted_on, COALESCE(SUM(cost), 0) AS paid FROM patients JOIN stays USING (patient_id) LEFT "
            "JOIN treatments USING (stay_id) WHERE name = {patient} GROUP BY stay_id ORDER BY admitted_on, paid",
            "SELECT s.admitted_on, (SELECT TOTAL(t.cost) FROM treatments t WHERE t.stay_id = s.stay_id) AS c FROM "
            "stays s WHERE s.patient_id IN (SELECT patient_id FROM patients WHERE name = {patient}) ORDER BY "
            "s.admitted_on, c",
            ordered=True,
        ),
        Template(
            HARD,
            "Which patients were admitted again within {days} days after a discharge (or on the same day)? "
            "Return their names, each once.",
            "SELECT DISTINCT name FROM patients JOIN stays a USING (patient_id) JOIN stays b USING (patient_id) WHERE "
            "a.stay_id <> b.stay_id AND b.admitted_on >= a.discharged_on AND "
            "julianday(b.admitted_on) - julianday(a.discharged_on) <= {days}",
            "SELECT p.name FROM patients p WHERE EXISTS (SELECT 1 FROM stays a, stays b WHERE a.patient_id = "
            "p.patient_id AND b.patient_id = p.patient_id AND a.stay_id <> b.stay_id AND a.discharged_on IS NOT NULL "
            "AND b.admitted_on BETWEEN a.discharged_on AND date(a.discharged_on, '+' || {days} || ' days'))",
        ),
        Template(
            HARD,
            "In which wards was the average stay longer than the average stay in the whole hospital? The length of a "
            "stay is the number of days from admission to discharge. Ignore stays that have not ended. Return the "
            "ward's name and its average.",
            "WITH d AS (SELECT ward_id, julianday(discharged_on) - julianday(admitted_on) AS days FROM stays WHERE "
            "discharged_on IS NOT NULL) SELECT name, AVG(days) FROM d JOIN wards USING (ward_id) GROUP BY ward_id "
            "HAVING AVG(days) > (SELECT AVG(days) FROM d)",
            "SELECT w.name, x.a FROM wards w JOIN (SELECT ward_id, SUM(julianday(discharged_on) - "
            "julianday(admitted_on)) / COUNT(discharged_on) AS a FROM stays GROUP BY ward_id) AS x ON x.ward_id = "
            "w.ward_id WHERE x.a > (SELECT AVG(julianday(discharged_on) - julianday(admitted_on)) FROM stays)",
        ),
        Template(
            HARD,
            "Which doctors gave the treatment {treatment} to at least {count} different patients from {city}? "
            "Return each doctor's name and the number of such patients.",
            "SELECT d.name, COUNT(DISTINCT p.patient_id) FROM doctors d JOIN treatments t USING (doctor_id) JOIN "
            "stays USING (stay_id) JOIN patients p USING (patient_id) WHERE t.kind = {treatment} AND p.city = {city} "
            "GROUP BY d.doctor_id HAVING COUNT(DISTINCT p.patient_id) >= {count}",
            "SELECT name, n FROM (SELECT d.name, (SELECT COUNT(*) FROM patients p WHERE p.city = {city} AND EXISTS "
            "(SELECT 1 FROM stays s JOIN treatments t ON t.stay_id = s.stay_id WHERE s.patient_id = p.patient_id AND "
            "t.doctor_id = d.doctor_id AND t.kind = {treatment})) AS n FROM doctors d) WHERE n >= {count}",
            held_out=True,
        ),
    ),
)
