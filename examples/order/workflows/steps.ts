import { FatalError, getStepMetadata, RetryableError } from 'workflow';
import type { Order } from './order';

// A step runs at least once, in any process. Once its result is stored, it never runs again for this order.
// Log lines stand in for calls to real services.

export async function reserveStock(order: Order) {
  'use step';
  if (order.item === 'unicorn') throw new FatalError('we are out of unicorns');
  log(`reserved one ${order.item} for order ${order.id}`);
  return 'shelf 7';
}

export async function chargeCard(order: Order) {
  'use step';
  // The step's ID is the same for every attempt, so it can be the payment service's idempotency key.
  const { attempt, stepId } = getStepMetadata();
  if (attempt === 1) {
    log('the card terminal is busy, trying again in a second');
    throw new RetryableError('card terminal busy', { retryAfter: '1s' });
  }
  log(`charged ${order.amount} for order ${order.id} (key ${stepId})`);
  return `receipt for ${order.amount}`;
}

export async function ship(order: Order, shelf: string) {
  'use step';
  log(`shipped order ${order.id} from ${shelf}`);
  return `parcel ${order.id}`;
}

export async function releaseStock(shelf: string) {
  'use step';
  log(`put back on ${shelf}`);
}

export async function refund(receipt: string) {
  'use step';
  log(`refunded: ${receipt}`);
}

function log(line: string) {
  console.log(`  ${line}`);
}
