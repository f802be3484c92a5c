// Herma's hooks for OpenCode, written by `herma connect opencode` and removed by `herma connect opencode --remove`.
// A failure is silent here; `herma doctor` tells it.
import { spawn } from "node:child_process"

const COMMAND = __COMMAND__

function hook(event, payload) {
  return new Promise((resolve) => {
    let out = ""
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), event, "--client", "opencode"], {
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

export const Herma = async ({ directory }) => {
  const shown = new Map() // the snapshot of each session: its system prompt must stay the same
  const about = (id, more) => ({ session_id: id, cwd: directory, ...more })
  const snapshot = (id) => {
    if (!shown.has(id)) shown.set(id, hook("session-start", about(id, { source: "startup" })))
    return shown.get(id)
  }
  return {
    event: async ({ event }) => {
      const id = event.properties?.sessionID ?? event.properties?.info?.id
      if (!id) return
      if (event.type === "session.idle") await hook("stop", about(id))
      if (event.type === "session.deleted") shown.delete(id)
    },
    "chat.message": async (input, output) => {
      const text = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      await snapshot(input.sessionID)
      const told = await hook("prompt", about(input.sessionID, { prompt: text.join("\n"), prompt_id: output.message.id }))
      if (!told) return
      output.parts.push({
        id: `prt_${Date.now().toString(16)}herma${Math.random().toString(36).slice(2, 10)}`,
        sessionID: input.sessionID,
        messageID: output.message.id,
        type: "text",
        text: told,
        synthetic: true,
      })
    },
    "experimental.chat.system.transform": async (input, output) => {
      const told = input.sessionID ? await snapshot(input.sessionID) : ""
      if (told) output.system.push(told)
    },
    "experimental.session.compacting": async (input) => {
      await hook("pre-compact", about(input.sessionID))
    },
  }
}
