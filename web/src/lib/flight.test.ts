import { expect, test } from 'vitest';
import { hasLanded, launch, withSighting } from './flight';

const started = launch('usa.1', 'West US', ['West US', 'Southeast Asia']);

test('a region is waited for until it is seen to have the article', () => {
  let flight = withSighting(started, 'West US', 0, 8, 'present');
  flight = withSighting(flight, 'Southeast Asia', 0, 10, 'absent');
  expect(hasLanded(flight)).toBe(false);
  flight = withSighting(flight, 'Southeast Asia', 90, 101, 'absent');
  flight = withSighting(flight, 'Southeast Asia', 181, 190, 'present');
  expect(flight.legs[1]).toEqual({ region: 'Southeast Asia', state: 'arrived', absentMs: 90, presentMs: 190 });
  expect(hasLanded(flight)).toBe(true);
});

test('what has arrived stays arrived', () => {
  const arrived = withSighting(started, 'West US', 0, 8, 'present');
  expect(withSighting(arrived, 'West US', 100, 108, 'absent')).toEqual(arrived);
});

test('a service that does not answer says nothing about the article', () => {
  const flight = withSighting(withSighting(started, 'West US', 5, 9, 'absent'), 'West US', 50, 99, {
    problem: 'stopped',
  });
  expect(flight.legs[0]).toEqual({ region: 'West US', state: 'waiting', absentMs: 5, problem: 'stopped' });
});
