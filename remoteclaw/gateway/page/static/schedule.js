// The schedules of cron jobs as text.

const weekday = new Intl.DateTimeFormat(undefined, { weekday: "long", timeZone: "UTC" });
const DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

/** Return a schedule as text; a cron expression that is more than a time on some days is returned unchanged. */
export function scheduleText({ at, every, cron, tz }) {
  const zone = tz ? ` (${tz})` : "";
  if (at) return `once, ${at.replace("T", " ")}${zone}`;
  if (every) return `every ${interval(every)}`;
  return `${clock(cron)}${zone}`;
}

function interval(seconds) {
  const [unit, length] = UNITS.find(([, each]) => seconds % each === 0);
  if (seconds === length) return unit;
  return new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay: "long" }).format(seconds / length);
}

function clock(expression) {
  const [minute, hour, day, month, days] = expression.split(/\s+/);
  const isPlain = /^\d+$/.test(minute) && /^(\d+|\*)$/.test(hour) && day === "*" && month === "*" && /^[\w*,-]+$/.test(days) && !/L/i.test(days);
  if (!isPlain) return expression;
  const at = minute.padStart(2, "0");
  const on = days === "*" ? "every day" : days.split(",").map((part) => part.split("-").map(dayName).join(" to ")).join(", ");
  return hour === "*" ? `every hour at :${at}${days === "*" ? "" : `, ${on}`}` : `${on} at ${hour.padStart(2, "0")}:${at}`;
}

function dayName(text) {
  const number = /^\d$/.test(text) ? Number(text) % 7 : DAYS.indexOf(text.slice(0, 3).toLowerCase());
  return number < 0 ? text : weekday.format(Date.UTC(2023, 0, 1 + number));  // 1 January 2023 was a Sunday
}
