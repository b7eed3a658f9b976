import stepwell

app = stepwell.App("shop")

@app.step
def charge(item): print("  charged the card")

@app.step
def pack(item): print("  packed a", item)

@app.step
def ship(item): print("  shipped the", item)

@app.workflow
async def order(run, item):
    await run.step(charge, item)
    await run.step(pack, item)
    await run.sleep(5)  # or five days: nothing runs meanwhile
    await run.step(ship, item)

stepwell.work(app)
