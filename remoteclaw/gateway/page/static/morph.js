// Updates elements with minimal changes, so that scroll positions and selections stay.

/** Make `element` equal to `wanted`; new child nodes are moved from there. */
export function morph(element, wanted) {
  for (const { name } of [...element.attributes]) if (!wanted.hasAttribute(name)) element.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  let current = element.firstChild;
  for (const child of [...wanted.childNodes]) {
    if (!current || !isLike(current, child)) {
      element.insertBefore(child, current);
      continue;
    }
    if (child.nodeType === Node.TEXT_NODE) updateText(current, child.data);
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

/** Replace the text of a text node from the first difference on. */
export function updateText(node, text) {
  const before = node.data;
  let same = 0;
  while (same < before.length && before[same] === text[same]) same += 1;
  if (same < before.length || same < text.length) node.replaceData(same, before.length - same, text.slice(same));
}
