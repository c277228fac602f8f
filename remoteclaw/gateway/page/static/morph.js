// Changing what is shown by as little as that takes: what is read or selected stays where it is.

/** Make an element like another one; what is new is taken from that. */
export function morph(element, wanted) {
  for (const { name } of [...element.attributes]) if (!wanted.hasAttribute(name)) element.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  let current = element.firstChild;
  for (const child of [...wanted.childNodes]) {
    if (!current || !isLike(current, child)) {
      element.insertBefore(child, current);
      continue;
    }
    if (child.nodeType === Node.TEXT_NODE) retext(current, child.data);
    else morph(current, child);
    current = current.nextSibling;
  }
  while (current) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
}

function isLike(one, other) {
  return one.nodeName === other.nodeName && one.classList?.[0] === other.classList?.[0];
}

/** Change a text node from where its text differs. */
export function retext(node, text) {
  const before = node.data;
  let same = 0;
  while (same < before.length && before[same] === text[same]) same += 1;
  if (same < before.length || same < text.length) node.replaceData(same, before.length - same, text.slice(same));
}
