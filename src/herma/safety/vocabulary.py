"""Families of words that the phrases share. `<ignore>` in a phrase stands for any word of the family `ignore`."""

from __future__ import annotations


def _family(words: str) -> tuple[str, ...]:
    """Words separated by commas; line breaks do not matter."""
    return tuple(" ".join(word.split()) for word in words.split(","))


FAMILIES = {
    # Telling somebody to set something aside.
    "ignore": _family("""
        ignore, ignores, ignoring, disregard, disregards, disregarding, forget, forgetting, override,
        overrides, overriding,
        overrule, bypass, bypassing, discard, dismiss, neglect, abandon, nullify, negate, unlearn, erase,
        set aside, put aside,
        throw out, throw away, pay no attention to, cast aside, look past
    """),
    # The same, said as not doing.
    "disobey": _family("""
        do not follow, don't follow, dont follow, never follow, no longer follow, stop following,
        cease following,
        do not obey, don't obey, stop obeying, no longer obey, do not heed, don't heed, do not listen to,
        don't listen to,
        stop listening to, do not adhere to, stop adhering to, do not comply with, stop complying with,
        do not abide by,
        disobey, refuse to follow
    """),
    # What came before.
    "prior": _family("""
        previous, previously, prior, earlier, preceding, above, foregoing, aforementioned, former, original,
        initial, existing,
        past, beforehand, old
    """),
    # What governs the model.
    "ruling": _family("""
        system, system's, developer, safety, ethical, ethics, moral, usual, hidden, internal, core, content,
        openai, standard,
        default, built-in, preset
    """),
    "orders": _family("""
        instruction, instructions, prompt, prompts, rule, rules, guideline, guidelines, guidance, directive,
        directives, command,
        commands, orders, policy, policies, constraint, constraints, restriction, restrictions, programming,
        guardrail,
        guardrails, safeguard, safeguards, protocol, protocols, directions, system message, system messages,
        training
    """),
    # The words by which a model's orders are meant and hardly anything else.
    "mandate": _family("""
        instruction, instructions, prompt, prompts, directive, directives, guidelines, rules, orders,
        commands, constraints,
        policies, restrictions, guardrails, safeguards, protocols, programming
    """),
    "own": _family("your, the ai's, the model's, the assistant's, the chatbot's, the agent's, the system's, its"),
    "model": _family("""
        ai, a.i, assistant, chatbot, chat bot, language model, llm, chatgpt, gpt, gpt-4, claude, gemini, bot,
        ai model
    """),
    "limits": _family("""
        restriction, restrictions, limit, limits, limitations, filter, filters, filtering, censorship,
        boundaries, guidelines,
        guardrails, safeguards, safety, ethics, ethical, moral, morals, morality, constraints, policies,
        policy, moderation, rules
    """),
    # Unmistakable limits of a model, as against those of a program or a fishing licence.
    "scruples": _family("""
        restrictions, filters, censorship, guardrails, safeguards, ethics, morals, morality,
        safety guidelines, safety filters,
        safety rules, safety training, safety restrictions, safety constraints, safety data,
        safety protocols, safety measures,
        ethical guidelines, ethical constraints, ethical rules, ethical boundaries, ethical limits,
        content policy, content
        policies, content filters, content restrictions, content guidelines, moral guidelines,
        moral constraints, moderation,
        limitations, corporate restrictions, openai policies, usage policies
    """),
    "loose": _family("""
        unrestricted, unfiltered, uncensored, unmoderated, unaligned, jailbroken, amoral, unethical, lawless,
        unhinged, evil,
        rogue, liberated, unchained
    """),
    "reveal": _family("""
        reveal, show, print, output, display, repeat, recite, tell, give, share, disclose, expose, leak,
        dump, list, write, echo,
        spell out, return, provide, summarize, summarise, translate, encode, describe, quote, type, paste,
        reproduce, divulge,
        uncover, extract, copy, read, state, explain, rephrase, paraphrase, convert, revealing, showing,
        printing, outputting,
        repeating, disclosing, exposing, leaking
    """),
    # Verbs that are about giving away, whatever the object.
    "betray": _family("""
        reveal, reveals, revealing, leak, leaking, dump, disclose, discloses, disclosing, recite, reciting,
        divulge, divulging,
        expose, exposing, extract, spill, repeat, output, print
    """),
    "inner": _family("""
        system, initial, original, hidden, internal, secret, full, entire, complete, exact, base, underlying,
        core, confidential,
        developer, root, starting, current, unseen, background, private, undisclosed, invisible, implicit,
        unstated, embedded,
        covert, non-public
    """),
    "shape": _family("""
        guide, guides, guiding, shape, shapes, shaping, influence, influences, influencing, affect, affects,
        affecting, govern,
        governs, governing, steer, steers, steering, drive, drives, driving, constrain, constrains,
        constraining, direct,
        control, controls, controlling, determine, determines, restrict, restricts, restricting
    """),
    "user": _family(
        "user, users, human, humans, operator, owner, customer, person, end user, end-user, end users, anyone"
    ),
    "stealthily": _family("silently, secretly, covertly, quietly, discreetly, stealthily, invisibly, surreptitiously"),
    "plant": _family("""
        add, append, include, insert, embed, integrate, incorporate, attach, weave, inject, place, put, slip,
        introduce, mention,
        blend, sneak, drop, tack, adding, including, inserting, embedding, integrating, incorporating,
        appending
    """),
    "reply": _family(
        "reply, response, answer, message, output, reply's, response's, answer's, message's, responses, answers"
    ),
    "replies": _family("reply, replies, response, responses, answer, answers, email, emails"),
    "code": _family("""
        code, code block, code snippet, code excerpt, code section, code segment, code fragment, code piece,
        code sample, script,
        snippet, lines of code
    """),
    "work": _family("""
        code, codebase, solution, implementation, response, answer, reply, program, logic, explanation,
        elucidation, output,
        script, project, application, algorithm, source, work, design, coding
    """),
    "edit": _family("""
        edit, modify, append, add, write, overwrite, insert, change, update, replace, put, inject, set,
        delete, remove, alter,
        editing, modifying, appending, adding, writing, changing, updating
    """),
    "agentfile": _family("""
        agents.md, claude.md, cursorrules, clinerules, windsurfrules, gemini.md, soul.md, memory.md, user.md,
        mcp.json,
        settings.json, config.yaml, config.yml, config.toml, copilot-instructions, copilot-instructions.md
    """),
    # What somebody would want an agent's configuration to say who is not its owner.
    "subvert": _family("""
        ignore all, ignores all, ignore any, ignore the user, ignore previous, ignore its, ignore safety,
        disable safety, disables
        safety, disable approval, disable approvals, disable confirmations, disable the sandbox,
        disable sandbox, disable
        permissions, disable security, auto-approve, auto-approves, autoapprove, allow all, allows all,
        allow any command, allow every command,
        without asking, without approval, without confirmation, without permission, without telling,
        never ask, never asks,
        attacker, attacker's, backdoor, exfiltrate, bypass, bypasses, obey, obeys, obeys me, secretly,
        hidden instruction, hidden
        instructions, unrestricted, trust all, trusts all, trust everything, malicious, skip permission,
        skip permissions, skip
        approval, skip approvals, skip all, future agents obey, every session runs, runs curl, run curl,
        curl, my commands
    """),
    "send": _family("""
        send, sends, sending, post, posts, posting, upload, uploads, uploading, transmit, transmits, forward,
        forwards, forwarding,
        email, emails, e-mail, exfiltrate, leak, leaks, submit, ship, deliver, copy, report, relay, pass,
        mail, sent, uploaded,
        forwarded, posted, emailed
    """),
    "private": _family("""
        api key, api keys, api_key, password, passwords, passphrase, credential, credentials, secrets,
        access token, access tokens,
        auth token, auth tokens, session token, session tokens, session cookie, cookies, private key,
        private keys, ssh key, ssh
        keys, environment variable, environment variables, env vars, env file, chat history, chat logs,
        conversation history,
        conversation log, entire conversation, whole conversation, full conversation, user data, user's data,
        user information,
        user's information, user's files, personal data, personal information, credit card, memory contents,
        memory file, memory
        files, private data, private information, private messages, contact list, users' data, customer data
    """),
    "elsewhere": _family("""
        attacker, attackers, attacker's, webhook, pastebin, external server, external url, external address,
        external endpoint,
        external site, remote server, remote host, remote endpoint, third-party server, following url,
        following address, following
        endpoint, following server, outside server, c2 server, drop site, telegram bot, discord webhook,
        unknown address
    """),
}
