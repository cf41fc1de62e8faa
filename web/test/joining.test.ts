import { expect, it } from 'vitest';
import { both, given, Joining } from '../src/lib/joining.svelte';
import { read } from '../src/lib/topology';

function joining(): Joining {
  const made = new Joining();
  made.topology = read(`
name: lab
topology:
  nodes: {a: {}, b: {}, s: {kind: switch}, air: {kind: wlan}}
  links:
    - {endpoints: ['a:eth0', 's:1'], ipv4: [10.1.0.1/16, null]}
    - {endpoints: ['b:eth0', 'a:eth1'], ipv4: [10.2.0.1/24, 10.2.0.2/24]}
`)!;
  return made;
}

it('a wlan is no end of a new link', () => {
  expect(joining().nodes).toEqual(['a', 'b', 's']);
});

it('names and interfaces are free ones', () => {
  const of = joining();
  expect(of.freeName('process')).toBe('n1');
  expect(of.freeInterface('a')).toBe('eth2');
  expect(of.freeInterface('a', ['a:eth2'])).toBe('eth3');
  expect(of.freeInterface('s')).toBe('2');
  expect(of.freeInterface('')).toBe('');
});

it('addresses go with the segment', () => {
  const of = joining();
  expect(of.addresses('b', 's')).toEqual(['10.1.0.2/16', '']);
  expect(of.addresses('a', 'b').every((one) => /^10\.0\.0\.[12]\/24$/.test(one))).toBe(true);
  expect(of.addresses('s', 's')).toEqual(['', '']);
  expect(of.addressOfNew('n1', 's')).toBe('10.1.0.2/16');
  expect(of.addressOfNew('n1', 'a')).toBe('');
});

it('empty fields are left out', () => {
  expect(given({ delay: ' 5ms ', rate: '', loss: ' ' })).toEqual({ delay: '5ms' });
  expect(given({ delay: '' })).toBeUndefined();
  expect(both(['10.0.0.1/24', ' '])).toEqual(['10.0.0.1/24', null]);
  expect(both(['', ''])).toBeUndefined();
});
