import { createHook, sleep } from 'workflow';
import { chargeCard, refund, releaseStock, reserveStock, ship } from './steps';

export type Order = { id: string; item: string; amount: number };
export type Approval = { approved: boolean; by: string };

/** Processes an order from checkout to shipping. It may take seconds or weeks, and survives restarts. */
export async function placeOrder(order: Order) {
  'use workflow';

  // Create the hook first, so that an early approval is not lost.
  using approval = createHook<Approval>({ token: `approve:${order.id}` });

  const [shelf, receipt] = await Promise.all([reserveStock(order), chargeCard(order)]);

  // A cancellation period. Nothing runs in the meantime.
  await sleep('5s');

  const { approved, by } = await approval;
  if (!approved) {
    await Promise.all([releaseStock(shelf), refund(receipt)]);
    return { order: order.id, outcome: `refused by ${by}` };
  }

  const parcel = await ship(order, shelf);
  return { order: order.id, outcome: `approved by ${by}`, receipt, parcel };
}
