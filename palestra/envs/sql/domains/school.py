"""Domain for a school with teachers, courses, students and their marks."""

from __future__ import annotations

from random import Random

from palestra.envs.sql.domain import EASY, HARD, MEDIUM, Domain, Names, Tables, Template
from palestra.envs.sql.domains.people import people
from palestra.envs.sql.draw import Draw

_SUBJECTS = (
    "Algebra",
    "Biology",
    "Chemistry",
    "Drawing",
    "English",
    "French",
    "Geography",
    "History",
    "Latin",
    "Music",
)
_DEPARTMENTS = ("languages", "sciences", "arts", "humanities")
_YEARS = (2023, 2024)
_CLASSES = ("9A", "9B", "10A", "10B", "11A", "11B")


def _names(rng: Random) -> Names:
    every = people(rng, 12 + 60)
    courses = [f"{subject} {part}" for subject in _SUBJECTS for part in ("I", "II")]
    return {"teacher": every[:12], "student": every[12:], "course": courses}


def _fill(draw: Draw, names: Names) -> Tables:
    teachers = [
        (key, name, draw.choice(_DEPARTMENTS), draw.day("2005-01-01", "2022-12-31"))
        for key, name in zip(draw.keys(12), names["teacher"], strict=True)
    ]
    active = teachers[:10]
    courses = [
        (key, title, draw.choice(active)[0], draw.integer(1, 4), draw.integer(2, 5))
        for key, title in zip(draw.keys(20), names["course"], strict=True)
    ]
    students = [
        (key, name, draw.choice(_CLASSES), draw.day("2007-01-01", "2011-12-31"))
        for key, name in zip(draw.keys(60), names["student"], strict=True)
    ]
    marks = []
    offered = courses[:18]
    for student in students[:56]:
        for course in draw.sample(offered, draw.integer(2, 6)):
            mark = None if draw.chance(0.08) else draw.integer(1, 20)
            marks.append((student[0], course[0], draw.choice(_YEARS), mark))
    return {"teachers": teachers, "courses": courses, "students": students, "enrolments": marks}


DOMAIN = Domain(
    name="school",
    about="A school's courses, students and marks. Marks range from 1 to 20; mark is NULL until the course has ended.",
    ddl=(
        (
            "CREATE TABLE teachers (teacher_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, department TEXT "
            "NOT NULL, hired_on TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE courses (course_id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, teacher_id INTEGER NOT "
            "NULL REFERENCES teachers, difficulty INTEGER NOT NULL, hours_per_week INTEGER NOT NULL)"
        ),
        (
            "CREATE TABLE students (student_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, class TEXT NOT NULL, "
            "born_on TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE enrolments (student_id INTEGER NOT NULL REFERENCES students, course_id INTEGER NOT NULL "
            "REFERENCES courses, year INTEGER NOT NULL, mark INTEGER, PRIMARY KEY (student_id, course_id))"
        ),
    ),
    slots={
        "department": _DEPARTMENTS,
        "class_name": _CLASSES,
        "year": (2023, 2024),
        "birth": (2007, 2008, 2009, 2010),
        "mark": range(8, 17),
        "count": (2, 3, 4, 5),
        "hired": range(2007, 2022),
    },
    names=_names,
    fill=_fill,
    templates=(
        Template(
            EASY,
            "How many students are in class {class_name}? Return one number.",
            "SELECT COUNT(*) FROM students WHERE class = {class_name}",
            "SELECT SUM(CASE class WHEN {class_name} THEN 1 ELSE 0 END) FROM students",
        ),
        Template(
            EASY,
            "Which students were born in {birth}? Return name and class.",
            "SELECT name, class FROM students WHERE strftime('%Y', born_on) = '' || {birth}",
            "SELECT name, class FROM students WHERE born_on BETWEEN {birth} || '-01-01' AND {birth} || '-12-31'",
        ),
        Template(
            EASY,
            "Which teachers of the {department} department were hired before {hired}? Return their names.",
            "SELECT name FROM teachers WHERE department = {department} AND hired_on < {hired} || '-01-01'",
            "SELECT name FROM teachers WHERE department = {department} AND CAST(strftime('%Y', hired_on) AS INTEGER) < "
            "{hired}",
            held_out=True,
        ),
        Template(
            EASY,
            "How many hours per week do the courses of each difficulty have on average? Return the difficulty and the "
            "average.",
            "SELECT difficulty, AVG(hours_per_week) FROM courses GROUP BY difficulty",
            "SELECT difficulty, TOTAL(hours_per_week) / COUNT(*) FROM courses GROUP BY difficulty",
        ),
        Template(
            MEDIUM,
            "Which courses does {teacher} teach? Return their titles in alphabetical order.",
            "SELECT title FROM courses JOIN teachers USING (teacher_id) WHERE name = {teacher} ORDER BY title",
            "SELECT title FROM courses WHERE teacher_id IN (SELECT teacher_id FROM teachers WHERE name = {teacher}) "
            "ORDER BY 1 ASC",
            ordered=True,
        ),
        Template(
            MEDIUM,
            "What is the average mark in {course} in the year {year}, ignoring missing marks? Return one number.",
            "SELECT AVG(mark) FROM enrolments JOIN courses USING (course_id) WHERE title = {course} AND year = {year}",
            "SELECT SUM(mark) * 1.0 / COUNT(mark) FROM enrolments WHERE year = {year} AND "
            "course_id = (SELECT course_id FROM courses WHERE title = {course})",
        ),
        Template(
            MEDIUM,
            "Which students of class {class_name} do not have a mark in any course, including students who have not "
            "enrolled in any course? Return their names.",
            "SELECT name FROM students WHERE class = {class_name} AND student_id NOT IN "
            "(SELECT student_id FROM enrolments WHERE mark IS NOT NULL)",
            "SELECT s.name FROM students s LEFT JOIN enrolments e ON e.student_id = s.student_id WHERE "
            "s.class = {class_name} GROUP BY s.student_id HAVING COUNT(e.mark) = 0",
            held_out=True,
        ),
        Template(
            MEDIUM,
            "For each department, how many courses do its teachers teach? Include departments whose teachers teach no "
            "courses, with the number 0, but omit departments without teachers. Return the department and the number.",
            "SELECT department, COUNT(course_id) FROM teachers LEFT JOIN courses USING (teacher_id) GROUP BY "
            "department",
            "SELECT d.department, (SELECT COUNT(*) FROM courses c JOIN teachers t ON t.teacher_id = c.teacher_id WHERE "
            "t.department = d.department) FROM (SELECT DISTINCT department FROM teachers) AS d",
        ),
        Template(
            HARD,
            "Which students have at least {count} marks and an average mark above {mark}? Return the name and the "
            "average.",
            "SELECT name, AVG(mark) FROM students JOIN enrolments USING (student_id) GROUP BY student_id "
            "HAVING COUNT(mark) >= {count} AND AVG(mark) > {mark}",
            "SELECT s.name, m.a FROM students s JOIN (SELECT student_id, SUM(mark) * 1.0 / COUNT(mark) AS a, "
            "COUNT(mark) AS n FROM enrolments WHERE mark IS NOT NULL GROUP BY student_id) AS m "
            "ON m.student_id = s.student_id WHERE m.n >= {count} AND m.a > {mark}",
            held_out=True,
        ),
        Template(
            HARD,
            "In each class, which student has the highest mark in a course taught by a teacher in the {department} "
            "department? Omit classes without such marks. In case of a tie, return all such students. Return class, "
            "name and mark, without duplicate rows.",
            "WITH m AS (SELECT s.class, s.name, e.mark FROM students s JOIN enrolments e USING (student_id) JOIN "
            "courses USING (course_id) JOIN teachers t USING (teacher_id) WHERE t.department = {department} AND "
            "e.mark IS NOT NULL) SELECT DISTINCT class, name, mark FROM m WHERE mark = (SELECT MAX(mark) FROM m AS o "
            "WHERE o.class = m.class)",
            "SELECT DISTINCT class, name, mark FROM (SELECT s.class, s.name, e.mark, RANK() OVER (PARTITION BY "
            "s.class ORDER BY e.mark DESC) AS place FROM students s JOIN enrolments e ON e.student_id = s.student_id "
            "JOIN courses c ON c.course_id = e.course_id JOIN teachers t ON t.teacher_id = c.teacher_id WHERE "
            "t.department = {department} AND e.mark IS NOT NULL) WHERE place = 1",
        ),
        Template(
            HARD,
            "Using only marks of the year {year}, which courses have an average mark that is higher than the average "
            "of all marks? Return title and average, sorted by average in descending order and then by title.",
            "SELECT title, AVG(mark) AS a FROM courses JOIN enrolments USING (course_id) WHERE year = {year} GROUP "
            "BY course_id HAVING a > (SELECT AVG(mark) FROM enrolments WHERE year = {year}) ORDER BY a DESC, title",
            "WITH y AS (SELECT * FROM enrolments WHERE year = {year} AND mark IS NOT NULL), a AS (SELECT course_id, "
            "AVG(mark) AS m FROM y GROUP BY course_id) SELECT c.title, a.m FROM a JOIN courses c ON c.course_id = "
            "a.course_id WHERE a.m > (SELECT AVG(mark) FROM y) ORDER BY a.m DESC, c.title",
            ordered=True,
        ),
        Template(
            HARD,
            "Which pairs of students of class {class_name} share at least two courses? Return both names of each pair "
            "in alphabetical order.",
            "SELECT a.name, b.name FROM students a JOIN students b ON a.class = b.class AND a.name < b.name JOIN "
            "enrolments x ON x.student_id = a.student_id JOIN enrolments y ON y.student_id = b.student_id AND "
            "y.course_id = x.course_id WHERE a.class = {class_name} GROUP BY a.student_id, b.student_id HAVING "
            "COUNT(*) >= 2",
            "SELECT a.name, b.name FROM students a, students b WHERE a.class = {class_name} AND b.class = "
            "{class_name} AND a.name < b.name AND (SELECT COUNT(*) FROM enrolments e WHERE e.student_id = "
            "a.student_id AND e.course_id IN (SELECT course_id FROM enrolments f WHERE f.student_id = b.student_id)) "
            ">= 2",
        ),
    ),
)
