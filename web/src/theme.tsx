/** The colours: light, dark or those of the system, and the accent of the app. */

import { effect, signal } from "@preact/signals";
import { Icon, type IconName } from "./Icon";
import { options } from "./options";

const KEY = "aguila-colours";
const SCHEMES = ["system", "light", "dark"] as const;
const ICONS: { [scheme in Scheme]: IconName } = { system: "screen", light: "sun", dark: "moon" };

type Scheme = (typeof SCHEMES)[number];

/** What the user chose; it is kept in the browser. */
export const scheme = signal<Scheme>(SCHEMES.find((one) => one === localStorage.getItem(KEY)) ?? "system");

// Every colour of the stylesheet is a light-dark().
effect(() => {
  document.documentElement.dataset["scheme"] = scheme.value;
  if (scheme.value === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, scheme.value);
});

/** Draw the switch between the three. */
export function SchemeButton() {
  const next = SCHEMES[(SCHEMES.indexOf(scheme.value) + 1) % SCHEMES.length]!;
  return (
    <button class="quiet icon-button" aria-label={`Colours: ${scheme.value}`} title={`Colours: ${scheme.value}. Change to ${next}`} onClick={() => (scheme.value = next)}>
      <Icon name={ICONS[scheme.value]} />
    </button>
  );
}

type Colour = readonly [number, number, number];

const BLACK: Colour = [0, 0, 0];
const WHITE: Colour = [255, 255, 255];
const GROUNDS = { light: [236, 238, 242], dark: [42, 47, 57] } as const; // --bg-hover, on which text has the least contrast
const READABLE = 4.6; // WCAG AA asks for 4.5

if (options.accent !== undefined) {
  const accent = parseColour(options.accent);
  const light = readable(accent, GROUNDS.light, BLACK);
  const dark = readable(accent, GROUNDS.dark, WHITE);
  const { style, dataset } = document.documentElement;
  style.setProperty("--light-accent", css(light));
  style.setProperty("--dark-accent", css(dark));
  style.setProperty("--light-accent-text", css(textOn(light)));
  style.setProperty("--dark-accent-text", css(textOn(dark)));
  dataset["accent"] = "own";
}

/** Return the colour, mixed with another until it can be read on a background. */
function readable(colour: Colour, ground: Colour, other: Colour): Colour {
  for (let share = 0; share < 1; share += 0.04) {
    const mixed = colour.map((each, at) => each * (1 - share) + other[at]! * share) as unknown as Colour;
    if (contrast(mixed, ground) >= READABLE) return mixed;
  }
  return other;
}

function textOn(colour: Colour): Colour {
  return contrast(colour, WHITE) >= contrast(colour, BLACK) ? WHITE : BLACK;
}

/** The contrast of two colours as WCAG defines it: 1 to 21. */
function contrast(one: Colour, other: Colour): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour: Colour): number {
  const [red, green, blue] = colour.map((each) => (each <= 10 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4)) as unknown as Colour;
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Read `#rgb` or `#rrggbb`. */
function parseColour(text: string): Colour {
  const digits = text.length === 4 ? [...text.slice(1)].map((each) => each + each) : (text.slice(1).match(/../g) ?? []);
  return digits.map((each) => parseInt(each, 16)) as unknown as Colour;
}

function css(colour: Colour): string {
  return `rgb(${colour.map(Math.round).join(" ")})`;
}
