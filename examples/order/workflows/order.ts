import { createHook, sleep } from 'workflow';
import { chargeCard, refund, releaseStock, reserveStock, ship } from './steps';

export type Order = { id: string; item: string; amount: number };
export type Approval = { approved: boolean; by: string };

/** An order from the cart to the parcel. It may take seconds or weeks, and survives every restart. */
export async function placeOrder(order: Order) {
  'use workflow';

  // Open from the start: an approval that comes early waits here.
  using approval = createHook<Approval>({ token: `approve:${order.id}` });

  const [shelf, receipt] = await Promise.all([reserveStock(order), chargeCard(order)]);

  // Time to change one's mind. Nothing runs meanwhile.
  await sleep('5s');

  const { approved, by } = await approval;
  if (!approved) {
    await Promise.all([releaseStock(shelf), refund(receipt)]);
    return { order: order.id, outcome: `refused by ${by}` };
  }

  const parcel = await ship(order, shelf);
  return { order: order.id, outcome: `approved by ${by}`, receipt, parcel };
}
