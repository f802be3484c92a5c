"""The words of dates: English, German, French, Spanish, and the commonest of Chinese, Japanese and Korean."""

from __future__ import annotations

from typing import Literal


def _numbered(names: str, first: int) -> dict[str, int]:
    return {name: number for number, group in enumerate(names.split(), first) for name in group.split("|")}


MONTHS = _numbered(
    "january|jan|januar|janvier|enero february|feb|februar|février|febrero march|mar|märz|mars|marzo "
    "april|apr|avril|abril may|mai|mayo june|jun|juni|juin|junio july|jul|juli|juillet|julio august|aug|août|agosto "
    "september|sep|sept|septembre|septiembre october|oct|oktober|okt|octobre|octubre november|nov|novembre|noviembre "
    "december|dec|dezember|dez|décembre|diciembre",
    1,
)
WEEKDAYS = _numbered(
    "monday|montag|lundi|lunes tuesday|dienstag|mardi|martes wednesday|mittwoch|mercredi|miércoles "
    "thursday|donnerstag|jeudi|jueves friday|freitag|vendredi|viernes saturday|samstag|samedi|sábado "
    "sunday|sonntag|dimanche|domingo",
    0,
)
NUMBERS = _numbered(
    "a|an|one|ein|einer|einem|un|une|una two|couple|zwei|deux|dos three|drei|trois|tres four|vier|quatre|cuatro "
    "five|fünf|cinq|cinco six|sechs|seis seven|sieben|sept|siete eight|acht|huit|ocho nine|neun|neuf|nueve "
    "ten|zehn|dix|diez eleven|elf|onze|once twelve|zwölf|douze|doce",
    1,
)
UNITS = {
    **dict.fromkeys(("hour", "hours", "stunde", "stunden", "heure", "heures", "hora", "horas"), "h"),
    **dict.fromkeys(("day", "days", "tag", "tage", "tagen", "jour", "jours", "día", "días", "night"), "d"),
    **dict.fromkeys(("week", "weeks", "woche", "wochen", "semaine", "semaines", "semana", "semanas"), "w"),
    **dict.fromkeys(("month", "months", "monat", "monate", "monaten", "mois", "mes", "meses"), "m"),
    **dict.fromkeys(("year", "years", "jahr", "jahre", "jahren", "an", "ans", "année", "año", "años"), "y"),
}

LAST = frozenset(("last", "past", "previous", "letzte", "letzten", "letzter", "letztes", "vorige", "vorigen"))
THIS = frozenset(("this", "diese", "diesen", "dieses", "cette", "esta", "este"))
AGO_AFTER = frozenset(("ago", "back"))
AGO_BEFORE: tuple[tuple[str, ...], ...] = (("il", "y", "a"), ("vor",), ("hace",))

EDGES: dict[str, Literal["in", "since", "before"]] = {
    **dict.fromkeys(("in", "on", "during", "from", "im", "am", "en"), "in"),
    **dict.fromkeys(("since", "after", "seit", "nach", "depuis", "desde"), "since"),
    **dict.fromkeys(("before", "until", "till", "bis", "avant", "antes"), "before"),
}

DAYS_BACK = {
    "today": 0,
    "this morning": 0,
    "tonight": 0,
    "yesterday": 1,
    "last night": 1,
    "the day before yesterday": 2,
    "day before yesterday": 2,
    "heute": 0,
    "gestern": 1,
    "vorgestern": 2,
    "aujourd'hui": 0,
    "avant-hier": 2,
    "hoy": 0,
    "ayer": 1,
    "anteayer": 2,
}
PERIODS = {
    "la semaine dernière": (1, "w"),
    "semaine dernière": (1, "w"),
    "le mois dernier": (1, "m"),
    "l'année dernière": (1, "y"),
    "la semana pasada": (1, "w"),
    "semana pasada": (1, "w"),
    "el mes pasado": (1, "m"),
    "el año pasado": (1, "y"),
}
DAYS_BACK_CJK = {"昨天": 1, "前天": 2, "今天": 0, "昨日": 1, "一昨日": 2, "어제": 1, "그저께": 2, "오늘": 0}
PERIODS_CJK = {
    "上周": (1, "w"),
    "上週": (1, "w"),
    "上星期": (1, "w"),
    "上个月": (1, "m"),
    "上個月": (1, "m"),
    "去年": (1, "y"),
    "先週": (1, "w"),
    "先月": (1, "m"),
    "昨年": (1, "y"),
    "지난주": (1, "w"),
    "지난달": (1, "m"),
    "작년": (1, "y"),
}
