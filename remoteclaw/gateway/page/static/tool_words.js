// What tools do, in words: the line of a turn's tool calls.

/** The kinds of tools, by the names that the CLIs use. */
const NAMES = {
  read: "Read NotebookRead read read_file read_many_files view_image",
  search: "Grep Glob LS grep glob list ls search_file_content grep_search list_directory",
  run: "Bash BashOutput shell bash run_shell_command exec_command",
  change: "Edit MultiEdit Write NotebookEdit edit multiedit write write_file replace apply_patch patch",
  fetch: "WebFetch WebSearch web_fetch web_search google_web_search webfetch websearch",
  task: "Task Agent task sessions_spawn",
  plan: "TodoWrite TodoRead todowrite todoread write_todos update_plan ExitPlanMode",
};
const KINDS = Object.fromEntries(Object.entries(NAMES).flatMap(([kind, names]) => names.split(" ").map((name) => [name, kind])));
/** The present and the past of each kind, and what several of it are. */
const WORDS = {
  read: ["Reading", "read", "files"],
  search: ["Searching", "searched", "times"],
  run: ["Running", "ran", "commands"],
  change: ["Changing", "changed", "files"],
  fetch: ["Looking at", "looked at", "pages of the web"],
  task: ["Giving a task:", "gave", "tasks"],
  plan: ["Planning", "updated the plan", ""],
};

/** A longer argument is not shown beside other tools. */
const MAX_NAMED_CHARS = 40;

const kindOf = (call) => KINDS[call.tool] ?? "";

/** Whether a tool changes files. */
export const isChange = (call) => kindOf(call) === "change";

/** Return what a running tool does, such as `Running make test`. */
export function present(call) {
  const kind = kindOf(call);
  return [kind ? WORDS[kind][0] : `Using ${call.tool ?? "a tool"}`, kind === "plan" ? "" : call.argument].filter(Boolean).join(" ");
}

/** Return what tools have done, such as `Read 3 files, ran 2 commands, changed shop/mail.py`. */
export function past(calls) {
  const groups = new Map();
  for (const call of calls) {
    const key = kindOf(call) || `used ${call.tool ?? "a tool"}`;
    groups.set(key, [...groups.get(key) ?? [], call]);
  }
  if (groups.size > 1) groups.delete("plan");
  const text = [...groups].map(([key, group]) => phrase(key, group, groups.size === 1)).join(", ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function phrase(kind, calls, isOnly) {
  const things = new Set(calls.map((call) => call.argument ?? "")), [first] = things;
  if (!(kind in WORDS)) return calls.length > 1 ? `${kind} ${calls.length} times` : isOnly && first ? `${kind} ${first}` : kind;
  const [, verb, many] = WORDS[kind];
  if (kind === "plan") return verb;
  const named = things.size === 1 && first;
  if (named && (isOnly || first.length <= MAX_NAMED_CHARS)) return kind === "search" ? `${verb} for ${first}` : `${verb} ${first}`;
  const number = kind === "read" || kind === "change" ? things.size : calls.length;
  if (kind === "search" && number === 1) return "searched";
  return `${verb} ${number === 1 ? `one ${many.replace(/s( of the web)?$/, "$1")}` : `${number} ${many}`}`;
}
