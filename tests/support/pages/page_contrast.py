"""Which texts of a page are too faint to read: WCAG 2's contrast, as the browser paints them.

Not here: the pages. Translucent grounds are laid over each other, as a screen does.
"""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Page

LEAST: Final = 4.5
"""Of text of the usual size, by WCAG 2.2, 1.4.3 (AA)."""

_SCRIPT: Final = r"""least => {
  const parts = text => {
    const [a, b, c, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return text.startsWith("color(") ? [a * 255, b * 255, c * 255, alpha] : [a, b, c, alpha];
  };
  const over = (upper, lower) =>
    [...[0, 1, 2].map(i => upper[i] * upper[3] + lower[i] * (1 - upper[3])), 1];
  const luminance = colour => {
    const [r, g, b] = colour.map(v => {
      const part = v / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    const layers = [];
    for (let it = element; it; it = it.parentElement) {
      layers.unshift(parts(getComputedStyle(it).backgroundColor));
    }
    return layers.reduce((lower, upper) => over(upper, lower), [255, 255, 255, 1]);
  };
  const judge = (name, paint, element) => {
    const below = ground(element);
    const [light, dark] = [luminance(over(parts(paint), below)), luminance(below)]
      .sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < least) faint.add(`${ratio.toFixed(2)} ${name.trim().slice(0, 60)}`);
  };
  const faint = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, element = text.parentElement;
    if (!text.data.trim() || element.closest("title, script, option")) continue;
    if (!element.checkVisibility({visibilityProperty: true})) continue;
    const drawing = element.closest("svg"), style = getComputedStyle(element);
    judge(text.data, drawing ? style.fill : style.color, drawing?.parentElement ?? element);
  }
  for (const field of document.querySelectorAll("[placeholder]")) {
    if (!field.checkVisibility({visibilityProperty: true})) continue;
    judge(field.placeholder, getComputedStyle(field, "::placeholder").color, field);
  }
  return [...faint];
}"""


def too_faint(page: Page) -> list[str]:
    """Each visible text with too little contrast, its ratio first."""
    found: list[str] = page.evaluate(_SCRIPT, LEAST)
    return found
