"""What keeps something, awaited: memory, transcripts, episodes, skills, facts, and who looks after them."""

from __future__ import annotations

from herma.aio.threads import Face, Threaded, Threads
from herma.curated import MemoryStore
from herma.curated.tail import Tail
from herma.episodes import Episodes
from herma.facts import Facts
from herma.index.sync import Index
from herma.providers.roster import Providers
from herma.reflect.curator import Curator
from herma.reflect.reviews import Reviews
from herma.skills import SkillLibrary
from herma.tools import Tools
from herma.tools.registry import Json
from herma.transcript import Transcripts


class AsyncMemory(Face):
    """`h.memory`, awaited."""

    apply = Threaded(MemoryStore.apply)
    entries = Threaded(MemoryStore.entries)
    describe = Threaded(MemoryStore.describe)
    load = Threaded(MemoryStore.load)
    history = Threaded(MemoryStore.history)
    undo = Threaded(MemoryStore.undo)
    propose = Threaded(MemoryStore.propose)
    pending = Threaded(MemoryStore.pending)
    approve = Threaded(MemoryStore.approve)
    reject = Threaded(MemoryStore.reject)
    status = Threaded(MemoryStore.status)
    reset = Threaded(MemoryStore.reset)
    adoption = Threaded(MemoryStore.adoption)
    adopt = Threaded(MemoryStore.adopt)
    annotate = Threaded(MemoryStore.annotate)
    change = Threaded(MemoryStore.change)

    def __init__(self, inner: MemoryStore, threads: Threads) -> None:
        super().__init__(inner, threads)
        self.tail = AsyncTail(inner.tail, threads)


class AsyncTail(Face):
    """`h.memory.tail`, awaited."""

    list = Threaded(Tail.list)
    get = Threaded(Tail.get)
    search = Threaded(Tail.search)
    restore = Threaded(Tail.restore)
    forget = Threaded(Tail.forget)
    unforget = Threaded(Tail.unforget)


class AsyncTranscripts(Face):
    """`h.transcripts`, awaited."""

    start = Threaded(Transcripts.start)
    append = Threaded(Transcripts.append)
    end = Threaded(Transcripts.end)
    messages = Threaded(Transcripts.messages)
    get = Threaded(Transcripts.get)
    resolve = Threaded(Transcripts.resolve)
    conversation = Threaded(Transcripts.conversation)
    list = Threaded(Transcripts.list)
    rename = Threaded(Transcripts.rename)
    archive = Threaded(Transcripts.archive)
    delete = Threaded(Transcripts.delete)
    undelete = Threaded(Transcripts.undelete)
    system_prompt = Threaded(Transcripts.system_prompt)
    around = Threaded(Transcripts.around)
    bookends = Threaded(Transcripts.bookends)
    tip = Threaded(Transcripts.tip)
    resume_target = Threaded(Transcripts.resume_target)
    next_title = Threaded(Transcripts.next_title)
    reopen = Threaded(Transcripts.reopen)
    record_usage = Threaded(Transcripts.record_usage)
    rewind = Threaded(Transcripts.rewind)
    restore_rewound = Threaded(Transcripts.restore_rewound)
    compact = Threaded(Transcripts.compact)
    restore_compacted = Threaded(Transcripts.restore_compacted)
    prune = Threaded(Transcripts.prune)
    expire = Threaded(Transcripts.expire)
    deleted = Threaded(Transcripts.deleted)
    purge_expired = Threaded(Transcripts.purge_expired)
    stats = Threaded(Transcripts.stats)


class AsyncEpisodes(Face):
    """`h.episodes`, awaited."""

    list = Threaded(Episodes.list)
    get = Threaded(Episodes.get)
    state = Threaded(Episodes.state)
    search_similar = Threaded(Episodes.search_similar)
    forget = Threaded(Episodes.forget)
    restore = Threaded(Episodes.restore)
    rebuild = Threaded(Episodes.rebuild)
    digests = Threaded(Episodes.digests)
    newest = Threaded(Episodes.newest)
    count = Threaded(Episodes.count)
    left_open = Threaded(Episodes.left_open)
    record = Threaded(Episodes.record)
    improve = Threaded(Episodes.improve)
    wait = Threaded(Episodes.wait)


class AsyncSkills(Face):
    """`h.skills`, awaited."""

    list = Threaded(SkillLibrary.list)
    get = Threaded(SkillLibrary.get)
    view = Threaded(SkillLibrary.view)
    files = Threaded(SkillLibrary.files)
    read_file = Threaded(SkillLibrary.read_file)
    find = Threaded(SkillLibrary.find)
    fill = Threaded(SkillLibrary.fill)
    apply = Threaded(SkillLibrary.apply)
    create = Threaded(SkillLibrary.create)
    patch = Threaded(SkillLibrary.patch)
    edit = Threaded(SkillLibrary.edit)
    delete = Threaded(SkillLibrary.delete)
    restore = Threaded(SkillLibrary.restore)
    record = Threaded(SkillLibrary.record)
    usage = Threaded(SkillLibrary.usage)
    history = Threaded(SkillLibrary.history)
    undo = Threaded(SkillLibrary.undo)
    write_file = Threaded(SkillLibrary.write_file)
    remove_file = Threaded(SkillLibrary.remove_file)
    archive = Threaded(SkillLibrary.archive)
    archived = Threaded(SkillLibrary.archived)
    scan = Threaded(SkillLibrary.scan)
    incoming = Threaded(SkillLibrary.incoming)
    install = Threaded(SkillLibrary.install)
    pin = Threaded(SkillLibrary.pin)
    unpin = Threaded(SkillLibrary.unpin)
    set_state = Threaded(SkillLibrary.set_state)
    vouch = Threaded(SkillLibrary.vouch)
    judge = Threaded(SkillLibrary.judge)
    propose = Threaded(SkillLibrary.propose)
    rehearse = Threaded(SkillLibrary.rehearse)
    pending = Threaded(SkillLibrary.pending)
    approve = Threaded(SkillLibrary.approve)
    reject = Threaded(SkillLibrary.reject)
    change = Threaded(SkillLibrary.change)
    undoable = Threaded(SkillLibrary.undoable)


class AsyncFacts(Face):
    """`h.facts`, awaited."""

    answer = Threaded(Facts.answer)
    get = Threaded(Facts.get)
    list = Threaded(Facts.list)
    history = Threaded(Facts.history)
    state = Threaded(Facts.state)
    forget = Threaded(Facts.forget)
    find = Threaded(Facts.find)
    unforget = Threaded(Facts.unforget)
    rebuild = Threaded(Facts.rebuild)


class AsyncReviews(Face):
    """`h.reviews`, awaited."""

    run = Threaded(Reviews.run)
    log = Threaded(Reviews.log)
    get = Threaded(Reviews.get)
    status = Threaded(Reviews.status)
    wait = Threaded(Reviews.wait)


class AsyncCurator(Face):
    """`h.curator`, awaited."""

    status = Threaded(Curator.status)
    run = Threaded(Curator.run)
    rollback = Threaded(Curator.rollback)
    reports = Threaded(Curator.reports)
    snapshots = Threaded(Curator.snapshots)
    report = Threaded(Curator.report)
    archive = Threaded(Curator.archive)
    archived = Threaded(Curator.archived)
    restore = Threaded(Curator.restore)
    pin = Threaded(Curator.pin)
    unpin = Threaded(Curator.unpin)
    due = Threaded(Curator.due)
    wait = Threaded(Curator.wait)


class AsyncIndex(Face):
    """`h.index`, awaited."""

    status = Threaded(Index.status)
    catch_up = Threaded(Index.catch_up)
    rebuild = Threaded(Index.rebuild)
    verify = Threaded(Index.verify)
    drop = Threaded(Index.drop)
    wait = Threaded(Index.wait)


class AsyncProviders(Face):
    """`h.providers`, awaited."""

    list = Threaded(Providers.list)
    status = Threaded(Providers.status)
    flush = Threaded(Providers.flush)


class AsyncTools(Face):
    """`h.tools`, awaited."""

    _inner: Tools

    call = Threaded(Tools.call)

    def schemas(self) -> list[Json]:
        return self._inner.schemas()
