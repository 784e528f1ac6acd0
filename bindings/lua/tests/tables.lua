--- Compares arrays and matrices with plain loops, for every kind of data, with torch (a substitute) and without.

local ffi = require 'ffi'
local check = require 'check'

local torch
if arg[1] == 'torch' then
    torch = check.torch()
    package.preload.torch = function() return torch end
end

local unisono = require 'unisono'
unisono.init { timeout = 120 }
unisono.init()
local workers, id = unisono.workers(), unisono.worker_id()
check.equal(unisono.size(), workers)
check.equal(unisono.rank(), id)
check.equal(unisono.server_id(), id)
check.equal(unisono.servers(), workers)

local function arrays()
    local size = 1000
    local delta = {}
    for i = 1, size do delta[i] = i end
    local array = unisono.ArrayTable:new(size)
    local kinds = { delta, ffi.new('float[?]', size, delta), ffi.new('double[?]', size, delta), ffi.new('int[1000]', delta) }
    kinds[5] = ffi.cast('float *', kinds[2])
    kinds[6] = { delta } -- nested
    if torch then
        kinds[7], kinds[8] = torch.FloatTensor(size), torch.DoubleTensor(size)
        for i = 1, size do kinds[7].memory[i - 1], kinds[8].memory[i - 1] = i, i end
    end
    for round, data in ipairs(kinds) do
        array:add(data)
        array:add(data, true)
        unisono.barrier()
        local values = array:get()
        for i = 1, size do check.equal(values[i], i * round * 2 * workers, 'round ' .. round) end
        unisono.barrier()
    end
    -- A fetched result can be added again.
    array:add(array:get())
    unisono.barrier()
    return array:get()
end

local function matrices()
    local rows, cols, ids = 11, 10, { 0, 1, 5, 10 }
    local matrix = unisono.MatrixTable:new(rows, cols)
    local all, some = {}, {}
    for i = 1, rows * cols do all[i] = i end
    for i, row in ipairs(ids) do
        some[i] = {}
        for j = 1, cols do some[i][j] = row * cols + j end
    end
    local forms = { ids, ffi.new('int[4]', ids), ffi.new('int64_t[4]', ids), ffi.new('double[4]', ids) }
    for count = 1, 20 do
        local row_ids = forms[count % 4 + 1]
        matrix:add(all)
        matrix:add(some, row_ids, count % 2 == 0)
        unisono.barrier()
        local values = matrix:get()
        for j = 1, rows do
            for k = 1, cols do
                local twice = (j == 1 or j == 2 or j == 6 or j == 11) and 2 or 1
                check.equal(values[j][k], ((j - 1) * cols + k) * count * workers * twice)
            end
        end
        unisono.barrier()
        local picked = matrix:get(row_ids)
        for i, row in ipairs(ids) do
            for k = 1, cols do check.equal(picked[i][k], (row * cols + k) * 2 * count * workers) end
        end
        unisono.barrier()
    end
    local twice = matrix:get { 7, 7 }
    for k = 1, cols do check.equal(twice[1][k], twice[2][k]) end
    return matrix:get()
end

local function initial_values()
    local mine = {}
    for i = 1, 6 do mine[i] = i + 100 * id end
    local array = unisono.ArrayTable:new(6, mine)
    local matrix = unisono.MatrixTable:new(2, 3, { { 1, 2, 3 }, { 4, 5, 6 } })
    local constant = unisono.ArrayTable:new(2, 0.5)
    for i = 1, 6 do
        check.equal(array:get()[i], i)
        check.equal(matrix:get()[math.ceil(i / 3)][(i - 1) % 3 + 1], i)
    end
    check.equal(constant:get()[2], 0.5)
    unisono.barrier()
end

local function options()
    local array = unisono.ArrayTable:new(2, nil, { updater = 'sgd', name = 'weights', reject_nan = true })
    array:add { 1, 2 }
    unisono.barrier()
    check.equal(array:get()[2], -2 * workers)
    check.fails('NaN', array.add, array, { 0 / 0, 1 })
    local adagrad = unisono.ArrayTable:new(1, nil, { updater = 'multiverso_adagrad' })
    adagrad:add({ 1 }, true, { rho = 0.25, learning_rate = 0.5 })
    unisono.barrier()
    local value = adagrad:get()[1]
    assert(value < 0, tostring(value))
    for _, case in ipairs { { 'sum', -2 }, { 'each', -2.9 } } do
        local repeats, expected = case[1], case[2]
        local momentum = unisono.MatrixTable:new(2, 1, nil, { updater = 'momentum', repeats = repeats })
        if id == 0 then momentum:add({ 1, 1 }, { 1, 1 }, true) end
        unisono.barrier()
        assert(math.abs(momentum:get()[2][1] - expected) < 1e-6, repeats)
    end
    local bounded = unisono.ArrayTable:new(1, nil, { consistency = 'ssp:1' })
    while bounded:clock() < 5 do
        bounded:add { 1 }
        bounded:tick()
        bounded:get()
    end
    local gets = 0
    for staleness, count in ipairs(bounded:staleness()) do
        assert(staleness - 1 <= 1)
        gets = gets + count
    end
    check.equal(gets, 5)
    unisono.barrier()
end

--- Workers with different numbers of rounds: a worker that has finished does not block the others.
local function unequal()
    local rounds = unisono.ArrayTable:new(1, nil, { consistency = 'bsp' })
    local other = unisono.MatrixTable:new(2, 2, nil, { consistency = 'bsp' })
    for round = 1, 4 * (id + 1) do
        rounds:add { 1 }
        local value = rounds:get()[1]
        if round <= 4 then check.equal(value, round * workers) end
    end
    rounds:add { 1 }
    rounds:finish()
    -- The rounds of the other table continue with all workers.
    for round = 1, 3 do
        other:add { 1, 2, 3, 4 }
        check.equal(other:get()[2][2], 4 * round * workers)
    end
    other:flush()
    unisono.finish()
    unisono.barrier()
    check.equal(rounds:get()[1], workers + 4 * workers * (workers + 1) / 2)
    unisono.barrier()
end

--- Results without torch: lengths, indices, texts.
local function results(vector, matrix)
    check.equal(#vector, 1000)
    check.equal(#matrix, 11)
    check.equal(#matrix[1], 10)
    check.equal(vector:totable()[3], vector[3])
    check.equal(matrix:totable()[2][3], matrix[2][3])
    vector[1] = 7
    check.equal(vector[1], 7)
    matrix[2][3] = 9
    check.equal(matrix[2][3], 9)
    check.fails('from 1 to 1000', function() return vector[0] end)
    check.fails('from 1 to 11', function() return matrix[12] end)
    local small = unisono.ArrayTable:new(3, { 1, 2.5, -3 })
    check.equal(tostring(small:get()), '[1, 2.5, -3]')
    local square = unisono.MatrixTable:new(2, 2, { 1, 2, 3, 4 })
    check.equal(tostring(square:get()), '[[1, 2],\n [3, 4]]')
    -- A row outlives its matrix.
    local row = square:get()[2]
    collectgarbage()
    collectgarbage()
    check.equal(tostring(row), '[3, 4]')
end

local vector, matrix = arrays(), matrices()
initial_values()
options()
unequal()
if torch then
    assert(torch.isTensor(vector) and torch.isTensor(matrix) and matrix.rows == 11)
    local ids = torch.LongTensor(2)
    ids.memory[0], ids.memory[1] = 1, 0
    local table_of_two = unisono.MatrixTable:new(2, 1, { 3, 4 })
    check.equal(table_of_two:get(ids)[1][1], 4)
else
    results(vector, matrix)
end
unisono.barrier()
local folder = os.getenv 'CHECK_FOLDER'
if folder then
    local array = unisono.ArrayTable:new(2, { 1, 2 })
    unisono.save(folder)
    array:add { 1, 1 }
    unisono.load(folder)
    check.equal(array:get()[2], 2)
end
unisono.shutdown()
print 'all well'
