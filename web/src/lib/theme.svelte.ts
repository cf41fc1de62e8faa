// Light, dark, or as the system says.

export type Theme = 'system' | 'light' | 'dark';

const STORED = 'lorentz-theme';
const stored = localStorage.getItem(STORED);
export const theme = $state<{ chosen: Theme; dark: boolean }>({
  chosen: stored === 'light' || stored === 'dark' ? stored : 'system',
  dark: false,
});

const system = matchMedia('(prefers-color-scheme: dark)');

function apply(): void {
  theme.dark = theme.chosen === 'system' ? system.matches : theme.chosen === 'dark';
  if (theme.chosen === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.chosen;
}

export function choose(chosen: Theme): void {
  theme.chosen = chosen;
  if (chosen === 'system') localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, chosen);
  apply();
}

system.addEventListener('change', apply);
apply();
