--- Incorrect calls: each raises a Lua error with the library's message, at the line of the program.

local ffi = require 'ffi'
local check = require 'check'
local unisono = require 'unisono'

check.fails('call unisono_init first', unisono.barrier)
check.fails('mistakes.lua:', function() unisono.barrier() end)
check.fails('above 0 seconds', unisono.init, { timeout = -1 })
check.fails('boss', unisono.init, { role = 'boss' })
check.fails('received a boolean', unisono.init, true)
unisono.init()
check.fails('size: expected a whole number', function() unisono.ArrayTable:new(0) end)
check.fails('size: expected a whole number', function() unisono.ArrayTable:new 'many' end)
check.fails('cols: expected a whole number', function() unisono.MatrixTable:new(2) end)
check.fails('expected 3 numbers, received 2', function() unisono.ArrayTable:new(3, { 1, 2 }) end)
check.fails('did you mean `sgd`', function() unisono.ArrayTable:new(3, nil, { updater = 'sdg' }) end)
check.fails('received "learning_rat"', function() unisono.ArrayTable:new(3, nil, { learning_rat = 1 }) end)
check.fails('received a function', function() unisono.ArrayTable:new(3, nil, { name = print }) end)
check.fails('received the key 1', function() unisono.ArrayTable:new(3, nil, { 'sgd' }) end)
check.fails('received a string', function() unisono.ArrayTable:new(3, nil, 'sgd') end)

local array = unisono.ArrayTable:new(3)
local matrix = unisono.MatrixTable:new(3, 2)
check.fails('3 elements', function() array:add { 1, 2 } end)
check.fails('mistakes.lua:', function() array:add { 1, 2 } end)
check.fails('received a string at position 2', function() array:add { 1, 'x', 3 } end)
check.fails('expected data', function() array:add() end)
check.fails('received string', function() array:add 'abc' end)
check.fails('received ctype', function() array:add(ffi.new 'struct { int x; }') end)
check.fails('3 at position 1', function() matrix:get { 0, 3 } end)
check.fails('-1 at position 0', function() matrix:add({ 1, 2 }, { -1 }) end)
check.fails('whole numbers', function() matrix:get { 0.5 } end)
check.fails('received number', function() matrix:get(1) end)
check.fails('UTF-8', unisono.save, '\255')
for i = 1, 3 do check.equal(array:get()[i], 0) end
unisono.shutdown()
check.fails('call unisono_init first', function() array:get() end)
check.fails('call unisono_init first', function() array:finish() end)
print 'all well'
