// Herma as the memory plug-in of OpenClaw, written by `herma connect --plugin openclaw`.
// A failure is silent here; `herma doctor` tells it.
import { spawn } from "node:child_process"

const COMMAND = __COMMAND__
const GUIDE = [
  "## Memory",
  "Herma recalls what fits a message from the conversations of all agents, and stores this one. Its tools read more"
    + " (session_search) and keep short facts (memory).",
]

function hook(event, payload) {
  return new Promise((resolve) => {
    let out = ""
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), event, "--client", "openclaw"], {
      stdio: ["pipe", "pipe", "ignore"],
    })
    const timer = setTimeout(() => child.kill(), 5000)
    const end = () => {
      clearTimeout(timer)
      resolve(out)
    }
    child.stdout.on("data", (piece) => (out += piece))
    child.on("error", end)
    child.on("close", end)
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(payload))
  })
}

export default {
  id: "herma",
  name: "Herma",
  description: "Memory that agents share: transcripts, search, curated notes",
  register(api) {
    const about = (event, ctx) => ({ session_id: ctx?.sessionId ?? event?.sessionId, cwd: ctx?.workspaceDir })
    const by_a_person = (ctx) =>
      (ctx?.trigger ?? "user") === "user" && (ctx?.inputProvenance?.kind ?? "external_user") === "external_user"
    api.registerMemoryCapability({ promptBuilder: () => GUIDE })
    api.on("before_prompt_build", async (event, ctx) => {
      if (!by_a_person(ctx)) return // heartbeats, timers and messages of other sessions
      const prompt = event.currentUserMessage ?? event.prompt
      const prompt_id = event.currentUserMessageId ?? ctx?.runId
      const told = await hook("prompt", { ...about(event, ctx), prompt, prompt_id })
      return told ? { prependContext: told } : undefined
    })
    api.on("agent_end", (event, ctx) => hook("stop", about(event, ctx)))
    api.on("session_end", (event, ctx) => hook("session-end", about(event, ctx)))
  },
}
