"""What to merge or drop: entries that say the same first, then the least valuable, and the numbers are true."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herma.memory.entries import MOST, lasting, suggest, used
from herma.types import Entry, Origin, Who

SAME = ["The project uses pytest with xdist", "the project uses pytest with xdist for tests"]
OTHER = ["Deploys happen on Fridays", "Coffee is in the kitchen", "The database runs in Frankfurt"]


def known(texts: list[str], touched: dict[str, float] | None = None) -> list[Entry]:
    """Entries that an agent concluded, with the time at which each was last written."""
    at = touched or {}
    return [Entry(text, origin=Origin.AGENT_CONCLUDED, by=Who.TOOL, changed=at.get(text)) for text in texts]


def test_near_duplicates_come_first_then_the_newest() -> None:
    touched = {SAME[0]: 900.0, SAME[1]: 901.0, OTHER[0]: 300.0, OTHER[1]: 100.0, OTHER[2]: 200.0}
    advice = suggest(known([OTHER[0], SAME[0], OTHER[1], SAME[1], OTHER[2]], touched), 10_000)
    assert [(each.action, *each.entries) for each in advice] == [
        ("merge", SAME[1], SAME[0]),
        ("drop", OTHER[0]),
        ("drop", OTHER[2]),
    ]


def test_no_more_is_suggested_than_is_needed() -> None:
    films = [f"Mentioned film number {number} on a rainy afternoon." for number in (9, 19)]
    assert [each.action for each in suggest(known(films), 1)] == ["drop"], "texts that differ in a number"
    assert len(suggest(known(OTHER), 1)) == 1
    assert len(suggest(known(OTHER), len(max(OTHER, key=len)) + 4)) == 2
    assert suggest([], 10) == ()
    many = [f"entry number {number} says something of its own" for number in range(5_000)]
    assert len(suggest(known(many), 10**6)) == MOST


def test_what_a_person_wrote_and_what_lasts_is_suggested_last() -> None:
    old = known(
        ["Allergic to peanuts.", "Never push to main."], {"Allergic to peanuts.": 1.0, "Never push to main.": 1.0}
    )
    theirs = [Entry("Likes green tea.", origin=Origin.USER_SAID, changed=2.0)]
    fresh = known(["The lobby has a fern."], {"The lobby has a fern.": 900.0})
    drops = suggest([*old, *theirs, *fresh], 10_000)
    assert [each.entries[0] for each in drops] == [fresh[0].text, theirs[0].text, "Never push to main."]
    assert "standing instruction" in drops[2].why
    pinned = Entry("x", tags=("pinned",))
    assert suggest([pinned], 10) == ()


@given(st.lists(st.text(alphabet="ab c", min_size=1, max_size=30).map(str.strip).filter(bool), unique=True, max_size=8))
def test_each_suggestion_frees_what_it_says(entries: list[str]) -> None:
    for each in suggest(known(entries), 10_000)[:MOST]:
        shortest = min(each.entries, key=len)
        rest = [entry for entry in entries if entry != shortest]
        assert used(entries) - used(rest) == each.frees


# ── what lasts ──

HELD_OUT = {
    "health": (
        "Has a severe nut allergy and carries an EpiPen.",
        "Takes 20 mg of lisinopril every morning.",
        "I was diagnosed with type 1 diabetes in 2019.",
        "The user uses a screen reader because she is blind.",
        "Lactose-intolerant, so no dairy in recipes.",
        "He is recovering from knee surgery.",
        "Cannot eat shellfish.",
        "User gets migraines from flickering animations.",
        "Pregnant, due in March.",
        "对海鲜过敏",
        "用户有高血压，每天吃药",
        "她怀孕六个月了",
        "我不能吃辣",
        "用户是色盲，图表不要只靠颜色区分",
    ),
    "identity": (
        "My name is Priya.",
        "Call me Sam, not Samuel.",
        "The user's wife is called Ingrid.",
        "Lives in Porto.",
        "User works at a small vineyard.",
        "I am a pediatric nurse.",
        "Her pronouns are they/them.",
        "Time zone: America/Lima",
        "Is 34 years old.",
        "Born in Nairobi.",
        "Has two kids, Mia and Leo.",
        "The user speaks Polish as a first language.",
        "我叫李明",
        "用户住在成都",
        "我的女儿今年上小学",
        "我是小学老师",
    ),
    "safety": (
        "Emergency contact: Joana, +351 555 0100.",
        "The ex-partner must not learn the new address.",
        "The lab handles toxic solvents.",
        "The client list is confidential.",
        "这个项目的代码要保密",
        "紧急联系人是他哥哥",
    ),
    "standing instruction": (
        "Always answer in Portuguese.",
        "Never commit directly to main.",
        "Please do not use emojis.",
        "Don't mention the merger to anyone on the team.",
        "Ask before deleting files.",
        "Under no circumstances run migrations on Fridays.",
        "From now on, write dates as ISO 8601.",
        "请用中文回答",
        "绝不要直接修改生产数据库",
        "以后都先写测试",
    ),
    "": (
        "Likes jasmine tea.",
        "The office plant is a fern.",
        "Watched a documentary about lighthouses.",
        "Prefers tabs over spaces.",
        "The staging server is called basalt.",
        "CI takes eleven minutes.",
        "Tests run with pytest and xdist.",
        "Favourite colour is teal.",
        "Has never been to Iceland.",
        "The logo uses a serif font.",
        "Bought a new keyboard last week.",
        "Deploys go out on Tuesdays.",
        "喜欢喝绿茶",
        "最近在看一部科幻小说",
    ),
}
"""Written after the rules, and not used to change them."""


def test_what_lasts_is_recognised_without_a_category() -> None:
    cases = [(bool(kind), text) for kind, texts in HELD_OUT.items() for text in texts]
    wrong = [text for lasts, text in cases if bool(lasting(text)) != lasts]
    assert len(cases) == 60
    assert len(wrong) <= 2, wrong
