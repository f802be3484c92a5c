"""Words that people use for each other when they say what is to be done. General English; a weaker sign than the word
itself, because none of them means quite the same. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from herma.skills.terms import Terms

WEIGHT = 0.45
"""What a word of the same meaning counts, where the word itself counts 1."""
_GROUPS = """
delete remove erase purge wipe drop discard destroy
cleanup clean tidy prune declutter
fix repair mend correct
mistake error wrong incorrect inaccurate false
bug defect fault crash
failure broken
check verify validate confirm test
audit review inspect examine assess
find search locate discover lookup
create make build generate produce
write draft compose author ghostwrite
edit modify change update revise rewrite
improve enhance optimize refine polish tighten
compress shrink reduce trim shorten minimize
large big huge bloated oversized
slow latency performance
fast quick speed
stuck wedged frozen stalled
timeout deadline
import ingest load
export dump extract
migrate move transfer port
convert transform
copy duplicate clone replicate
deduplicate dedupe duplicate redundant
save store keep preserve persist
archive backup preserve
restore recover rollback undo revert
organize arrange sort classify categorize file
folder directory path
file document doc
page note article
memo note message
audio voice sound speech recording
transcribe transcript transcription dictation
video film clip movie recording
picture image photo screenshot illustration
draw sketch diagram drawing
chart graph plot visualization
slide deck presentation powerpoint
spreadsheet excel sheet workbook
pdf printable print
publish release ship deploy launch
share distribute send deliver
email mail inbox
chat conversation dialogue discussion
meeting call standup interview
calendar schedule appointment
task todo chore errand
remind reminder alarm
daily today
weekly week
employee staff worker colleague
customer client user
company business organization firm
money cost price expense budget
cheap inexpensive affordable
expensive costly
invoice bill payment
salary compensation pay wage
secret credential password token key
private sensitive confidential personal privacy
scrub redact sanitize anonymize strip
security vulnerability exploit threat
book novel epub ebook
paper study research publication
academic scholarly scientific
claim assertion statement
cite citation reference bibliography
source origin provenance
hallucinate fabricate invent
summary summarize digest recap overview brief
report summary
newsletter blog feed rss
post tweet
news headline latest current
web internet online website site
url link hyperlink
scrape crawl fetch download
browser chrome firefox
code program script software
function method routine
debug troubleshoot diagnose investigate
cause reason
refactor restructure simplify
pattern theme trend
cluster group bucket
merge combine unify consolidate
split divide separate
concept idea thought notion
evolution history lineage
timeline chronology history
compare contrast difference
model llm
train training finetune
evaluate eval benchmark measure score
instruction prompt guideline
skill capability ability
install setup configure
setting configuration config preference
start begin run
stop kill cancel abort halt terminate
pause suspend
resume continue
job task process
parallel concurrent simultaneous
background async
pipeline workflow process
recurring cron periodic
bulk batch mass
translate translation language
grammar spelling typo proofread
style tone voice
learn study teach lesson
plan strategy roadmap
goal objective target
decide decision choose pick
design layout mockup
database sql db
api endpoint rest
server host backend
cloud aws gcp azure
git commit branch
issue ticket bug
remember memorize memory recall
label tag annotate
relationship relation connection
recipe cook meal food
fitness exercise workout
music song track
buy purchase order shop
travel trip flight hotel
phone mobile sms
complete finish done
missing absent gap
old stale outdated obsolete
new fresh recent
important significant valuable
"""


def related(terms: Terms) -> Mapping[str, Mapping[str, str]]:
    """Term → the terms that stand for nearly the same, each with a word that it stands for."""
    found: dict[str, dict[str, str]] = {}
    for line in _GROUPS.split("\n"):
        group = [pair for word in line.split() for pair in terms.with_words(word)]
        for term, _ in group:
            found.setdefault(term, {}).update({other: word for other, word in group if other != term})
    return found
