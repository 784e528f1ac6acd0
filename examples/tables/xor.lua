--- A network of two inputs, four hidden neurons and one output learns exclusive or, on any number of workers.
--
-- The weights are a table that all workers share. Each worker takes some of the four samples, adds its part of the
-- gradient, and fetches the new weights. Start it with: unisono run -n 4 -- luajit examples/tables/xor.lua

local unisono = require 'unisono'

local HIDDEN, EPOCHS, RATE = 4, 2000, 0.5
local SAMPLES = { { 0, 0, 0 }, { 0, 1, 1 }, { 1, 0, 1 }, { 1, 1, 0 } }

-- The weights in one array: for each hidden neuron its bias and two inputs, then the output's bias and its inputs.
local COUNT = HIDDEN * 3 + 1 + HIDDEN
local OUTPUT = HIDDEN * 3

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end
local function tanh(x) return 2 * sigmoid(2 * x) - 1 end

--- Returns the values of the hidden neurons and the output, for two inputs.
local function forward(w, x1, x2)
    local hidden, sum = {}, w[OUTPUT + 1]
    for j = 1, HIDDEN do
        local at = (j - 1) * 3
        hidden[j] = tanh(w[at + 1] + w[at + 2] * x1 + w[at + 3] * x2)
        sum = sum + w[OUTPUT + 1 + j] * hidden[j]
    end
    return hidden, sigmoid(sum)
end

--- Adds the gradient of one sample's cross entropy; its derivative with respect to the output's sum is output - target.
local function backward(w, gradient, x1, x2, target)
    local hidden, output = forward(w, x1, x2)
    local error_out = output - target
    gradient[OUTPUT + 1] = gradient[OUTPUT + 1] + error_out
    for j = 1, HIDDEN do
        local error_hidden = error_out * w[OUTPUT + 1 + j] * (1 - hidden[j] ^ 2)
        local at = (j - 1) * 3
        gradient[OUTPUT + 1 + j] = gradient[OUTPUT + 1 + j] + error_out * hidden[j]
        gradient[at + 1] = gradient[at + 1] + error_hidden
        gradient[at + 2] = gradient[at + 2] + error_hidden * x1
        gradient[at + 3] = gradient[at + 3] + error_hidden * x2
    end
end

unisono.init()
local workers, id = unisono.workers(), unisono.worker_id()

-- Initial values between -1 and 1, the same in every run; worker 0's are used.
local first, seed = {}, 7
for i = 1, COUNT do
    seed = (seed * 16807) % 2147483647
    first[i] = seed / 2147483647 * 2 - 1
end
local weights = unisono.ArrayTable:new(COUNT, first)

for _ = 1, EPOCHS do
    local w, step = weights:get(), {}
    for i = 1, COUNT do step[i] = 0 end
    unisono.barrier() -- No worker adds before all have fetched.
    for number, sample in ipairs(SAMPLES) do
        if number % workers == id then backward(w, step, unpack(sample)) end
    end
    for i = 1, COUNT do step[i] = -RATE * step[i] end
    weights:add(step)
    unisono.barrier()
end

local w = weights:get()
for _, sample in ipairs(SAMPLES) do
    local _, output = forward(w, sample[1], sample[2])
    if id == 0 then print(('%d xor %d = %.3f'):format(sample[1], sample[2], output)) end
    assert(math.abs(output - sample[3]) < 0.1, 'xor was not learned')
end
unisono.barrier()
unisono.shutdown()
