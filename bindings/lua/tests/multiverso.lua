--- A program for Multiverso with synchronous tables: every get sees the same adds of all workers.

local ffi = require 'ffi'
local check = require 'check'
local mv = require 'multiverso'

mv.init(true)
local workers = mv.num_workers()
assert(mv.worker_id() >= 0 and mv.server_id() >= 0)
check.equal(mv.num_servers(), workers)
local size = 100
local delta = {}
for i = 1, size do delta[i] = i end
local tbh = mv.ArrayTableHandler:new(size, delta)
-- The number of rounds depends on the worker: a worker that has finished does not block the others.
for round = 1, 5 * (mv.worker_id() + 1) do
    tbh:add(delta)
    local values = tbh:get()
    if round <= 5 then
        for i = 1, size do check.equal(values[i], i * (round * workers + 1)) end
    end
end
mv.finish()
mv.barrier()

-- Objects are created with new and New; in rounds, all workers make the same calls again.
local matrix = mv.MatrixTableHandler:New(3, 2, { { 1, 2 }, { 3, 4 }, { 5, 6 } })
matrix:add({ { 10, 20 } }, { 2 }, true)
check.equal(matrix:get({ 2 })[1][2], 6 + 20 * workers)
check.equal(mv.ArrayTableHandler:New(2, 0.5):get()[2], 0.5)
check.equal(mv.util.tensor2cdata({ 5, 6 }, 'double')[1], 6)
check.equal(tostring(mv.util.cdata2tensor(ffi.new('float[2]', 1, 2), 2)), '[1, 2]')

-- Errors are raised at the program's lines, not in the binding.
check.fails('received nil', function() mv.util.tensor2cdata() end)
check.fails('/tests/multiverso.lua:', function() mv.init { timeout = -1 } end)
check.fails('/tests/multiverso.lua:', function() mv.MatrixTableHandler:new(2) end)
mv.barrier()
mv.shutdown()
print 'all well'
