--- A program for Multiverso with synchronous tables: every get sees the same adds of all workers.

local check = require 'check'
local mv = require 'multiverso'

mv.init(true)
local workers = mv.num_workers()
assert(mv.worker_id() >= 0 and mv.server_id() >= 0)
local size = 100
local delta = {}
for i = 1, size do delta[i] = i end
local tbh = mv.ArrayTableHandler:new(size, delta)
-- As many rounds as the worker's number says: who has finished keeps nobody waiting.
for round = 1, 5 * (mv.worker_id() + 1) do
    tbh:add(delta)
    local values = tbh:get()
    if round <= 5 then
        for i = 1, size do check.equal(values[i], i * (round * workers + 1)) end
    end
end
mv.finish()
mv.barrier()
mv.shutdown()
print 'all well'
